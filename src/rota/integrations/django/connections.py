"""Django's connections around a job: checked as around a request."""

from __future__ import annotations

import json
import os
from typing import Any

from asgiref.sync import sync_to_async
from django.core import mail
from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from rota.declare.context import Context
from rota.store.pools import close_all


class check_connections:  # noqa: N801 - it is used as a function
    """Close broken or too old connections of Django in this thread, before and after the handler.
    The App of `rota.integrations.django` does so by itself; another App needs
    `App(middleware=check_connections)`.

    Django checks a thread's connection only around requests. Otherwise a broken connection stays in
    its thread, and every later job of that thread fails. The connections of an async handler are in
    the thread of `sync_to_async`, and are checked there.
    """

    def __init__(self, context: Context) -> None: ...

    def __enter__(self) -> None:
        close_old_connections()

    def __exit__(self, *raised: object) -> None:
        close_old_connections()

    async def __aenter__(self) -> None:
        await sync_to_async(close_old_connections)()

    async def __aexit__(self, *raised: object) -> None:
        await sync_to_async(close_old_connections)()


@receiver(connection_created)
def _close_pools(connection: Any, **_: Any) -> None:
    """Close the pools of all Apps before Django drops a test database: their connections would
    prevent it. Django drops or makes one from a connection to no database."""
    if connection.alias == NO_DB_ALIAS:
        close_all()
    elif hasattr(mail, "outbox"):
        # A test run; any other process uses the databases of its settings.
        _tell_children(connection.alias, connection.settings_dict["NAME"])


NAMES = "ROTA_DJANGO_NAMES"
"""The variable that tells a test's child process which databases the test uses."""


def _tell_children(alias: str, name: str) -> None:
    module = os.environ.get("DJANGO_SETTINGS_MODULE", "")
    told = json.loads(os.environ.get(NAMES, "{}"))
    names = {**told.get(module, {}), alias: str(name)}
    os.environ[NAMES] = json.dumps({module: names})


def use_names_of_parent() -> None:
    """Let a test's child process use the test's databases. Call it before a connection is made."""
    module = os.environ.get("DJANGO_SETTINGS_MODULE", "")
    for alias, name in json.loads(os.environ.get(NAMES, "{}")).get(module, {}).items():
        if alias in connections.settings:
            connections.settings[alias]["NAME"] = name


def close_old_connections() -> None:
    """Do as Django's function, but keep a connection in an open transaction: a test uses it, and
    Django would take it for a connection in a wrong state."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
