"""Django: what it does around a request, around a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from rota.declare.context import Context


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


def _close_old_connections() -> None:
    """As Django's own function, but for a connection in an open transaction: that is one of a test,
    and Django takes it for one that was left in a wrong state."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
