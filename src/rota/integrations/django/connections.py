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
    """Close Django's connections of this thread that are broken or too old: before the handler, and
    after it. The App of `rota.integrations.django` does it by itself; another one by
    `App(middleware=check_connections)`.

    Django keeps a connection for each thread, and checks it around each request. Without this a
    connection that broke stays in its thread, and every later job of that thread fails. Those of an
    async handler are in the thread of `sync_to_async`, and are checked there.
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
    """Close the pools of all Apps before Django drops a test database, which it does, as it makes
    one, from a connection to no database: their connections would keep it from that."""
    if connection.alias == NO_DB_ALIAS:
        close_all()
    elif hasattr(mail, "outbox"):
        # A test run; any other process is on what its settings say.
        _tell_children(connection.alias, connection.settings_dict["NAME"])


NAMES = "ROTA_DJANGO_NAMES"
"""The variable by which a process that a test starts knows which databases the test is on."""


def _tell_children(alias: str, name: str) -> None:
    module = os.environ.get("DJANGO_SETTINGS_MODULE", "")
    told = json.loads(os.environ.get(NAMES, "{}"))
    names = {**told.get(module, {}), alias: str(name)}
    os.environ[NAMES] = json.dumps({module: names})


def use_names_of_parent() -> None:
    """Let a process that a test started use the databases of the test. To be called before a
    connection is made."""
    module = os.environ.get("DJANGO_SETTINGS_MODULE", "")
    for alias, name in json.loads(os.environ.get(NAMES, "{}")).get(module, {}).items():
        if alias in connections.settings:
            connections.settings[alias]["NAME"] = name


def close_old_connections() -> None:
    """As Django's own function, but for a connection in an open transaction: that is one of a test,
    and Django takes it for one that was left in a wrong state."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
