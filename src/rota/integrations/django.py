"""Django: what it does around a request, around a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from rota.declare.context import Context
from rota.store.pools import close_all


@contextmanager
def check_connections(context: Context) -> Iterator[None]:
    """Close Django's connections of this thread that are broken or too old: before the handler, and
    after it. Use it as `App(middleware=check_connections)`.

    Django keeps a connection for each thread, and checks it around each request. Without this a
    connection that broke stays in its thread, and every later job of that thread fails. For async
    handlers it does nothing: their connections belong to the threads of `sync_to_async`.
    """
    _close_old_connections()
    try:
        yield
    finally:
        _close_old_connections()


@receiver(connection_created)
def _close_pools(connection: Any, **_: Any) -> None:
    """Close the pools of all Apps before Django drops a test database, which it does, as it makes
    one, from a connection to no database: their connections would keep it from that."""
    if connection.alias == NO_DB_ALIAS:
        close_all()


def _close_old_connections() -> None:
    """As Django's own function, but for a connection in an open transaction: that is one of a test,
    and Django takes it for one that was left in a wrong state."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
