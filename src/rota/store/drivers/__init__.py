"""The drivers, each one small file, and the choice of one for a connection of the caller's."""

from __future__ import annotations

from typing import Any

from rota.store.driver import AsyncDriver, Driver
from rota.store.drivers.psycopg3 import AsyncPsycopgDriver, PsycopgDriver


def find_driver(connection: Any) -> Driver:
    """Return the driver for a connection in plain code. Raises UsageError."""
    return PsycopgDriver.adopt(connection)


def find_async_driver(connection: Any) -> AsyncDriver:
    """Return the driver for a connection of an event loop. Raises UsageError."""
    return AsyncPsycopgDriver.adopt(connection)
