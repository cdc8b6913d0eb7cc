"""The App of a Django project: every call joins Django's own connection."""

from __future__ import annotations

import inspect
import os
from functools import cache, partial
from typing import Any, TypeVar, Unpack

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from rota.app import App
from rota.declare.around import list_arounds
from rota.declare.config import Queues, WorkerConfig
from rota.declare.release import release_of
from rota.declare.url import find_url
from rota.errors import RotaError
from rota.integrations.django.connections import check_connections
from rota.store.db import Database, RunOptions
from rota.store.driver import Operation

T = TypeVar("T")

SETUP = "rota.integrations.django.setup"
"""The module that sets Django up on import, and whose `app` is the App of the project."""
OPTIONS = {*inspect.signature(App).parameters} - {"url", "require_connection"} | {"using"}
"""The options of the setting ROTA."""
DATABASE = "ROTA_DJANGO_DATABASE"
"""The variable with which `manage.py rota --database` tells its child processes the alias."""


class DjangoApp(App):
    """An App on a database of Django.

    A call without a connection runs on the connection that Django has for the alias in this thread:
    in its transaction, in its query log, and in a test in the database of the test. In async code
    the call runs in the thread of `sync_to_async`, as Django's own async calls do. Workers have
    their own connections.
    """

    _is_tested_by_its_framework = True

    def __init__(self, using: str, **options: Any) -> None:
        arounds = [check_connections, *list_arounds(options.pop("middleware", ()))]
        self.using: str = using
        """The alias of the database in DATABASES."""
        super().__init__(lambda: connections[self.using], middleware=arounds, **options)
        self.more_queues: set[str] = set()
        """Queues of Django's tasks, which workers serve beside the queues of the job types."""
        # A process that knows only this module can then import the handlers.
        self._module = SETUP

    @property
    def release(self) -> str:
        """The release of the project: from ROTA, otherwise that of the module of the settings."""
        if self._release is None:
            self._release = release_of(getattr(settings, "SETTINGS_MODULE", None))
        return self._release

    @property
    def _database(self) -> Database:
        """The database as DATABASES has it now: a test changes it."""
        opened = self._opened
        if type(opened) is Database and opened.url != find_url(self._url):
            vars(self).pop("_opened", None)
            opened.close()
        return super()._database

    def _find_url(self) -> str | None:
        return find_url(self._url) if type(self._opened) is Database else super()._find_url()

    @property
    def _joined(self) -> Any:
        """The alias of the connection to join; None if a Harness has another database."""
        opened = self._opened
        if opened is None or type(opened) is Database or opened.url == find_url(self._url):
            return self.using
        return None

    def _config(self, queues: Queues | None, *others: Any) -> WorkerConfig:
        if queues is None and self.more_queues:
            used = {job_type._declaration.options.queue for job_type in self.types.values()}
            queues = sorted({"default", *used, *self.more_queues})
        return super()._config(queues, *others)

    def _declares_queue(self, name: str) -> bool:
        return name in self.more_queues or super()._declares_queue(name)

    @property
    def _tested(self) -> Any:
        """The alias, in a TestCase."""
        return self.using if connections[self.using].in_atomic_block else None

    async def _arun(
        self,
        operation: Operation[T],
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> T:
        """Run an operation where Django's async calls run their statements."""
        if connection is not None:
            return await super()._arun(operation, connection, **options)
        return await sync_to_async(partial(self._run, operation, **options))()


@cache
def find_app() -> DjangoApp:
    """Return the App of the project; make it with the options of the setting ROTA.

    Raises:
        ImproperlyConfigured: the setting is no mapping, or an option in it is unknown or wrong.
    """
    given = getattr(settings, "ROTA", {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"ROTA must be a dict of options, not {given!r}")
    if unknown := sorted(given.keys() - OPTIONS):
        raise ImproperlyConfigured(
            f"ROTA has no option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}"
        )
    using = os.environ.get(DATABASE) or given.get("using", "default")
    try:
        return DjangoApp(**{**given, "using": using})
    except RotaError as error:
        raise ImproperlyConfigured(f"the setting ROTA: {error}") from error
