"""Opens, listens on, cancels and cuts Rota's own connections, with a limit for each answer.

They are connections of psycopg, whatever driver the application has.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rota.declare.url import SettingsUrl
from rota.errors import ConfigurationError, RotaError
from rota.store.drivers.psycopg3 import ERRORS, AsyncPsycopgDriver, translate
from rota.store.errors import ServerTrouble, StoreError, is_of_statement, unavailable

CANCEL_S = 2.0
"""Longest time to send a cancel to a silent server; at most a quarter of the limit."""

RESTORED = "; after a restore without sequences run `rota queues resume --copy`"


def parse_url(url: str) -> dict[str, Any]:
    """Return the parameters of a libpq URL or connection string. The ConfigurationError never shows
    the URL, any part of which may be the password, but the name of an unknown setting."""
    try:
        params: dict[str, Any] = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        unknown = re.search(r'parameter: "(\w+)"', str(error))
        if unknown is not None and isinstance(url, SettingsUrl):
            raise ConfigurationError(
                f"the database of Django has the option {unknown[1]!r}, which Rota cannot use: its "
                "workers connect by libpq, which does not have it"
            ) from None
        # libpq quotes its input, up to the whole URL.
        scheme = re.match(r"([a-z][a-z0-9+.-]*)://", url, re.IGNORECASE)
        if scheme is not None and scheme[1] not in ("postgresql", "postgres"):
            raise ConfigurationError(
                f"Rota needs PostgreSQL; this URL is of {scheme[1]}: it must look like "
                "postgresql://user:password@host:5432/name"
            ) from None
        reason = str(error).partition('"')[0].strip().rstrip(":")
        if scheme is None:  # the text is read as name=value
            reason = "no postgresql:// at its beginning"
        raise ConfigurationError(
            f"the database URL cannot be read ({reason} …): it must look like "
            "postgresql://user:password@host:5432/name (rota.App takes it first, and no name); it "
            "may hold a password and is not shown"
        ) from None
    if _is_cut_wrong(url, params):
        raise ConfigurationError(
            "the database URL cannot be read: an @, : or / in its user or password must be written "
            "as %40, %3A or %2F; it may hold a password and is not shown"
        )
    return params


def _is_cut_wrong(url: str, params: dict[str, Any]) -> bool:
    """Whether libpq takes a piece of the password for a host, a port or a database."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("postgresql", "postgres"):
        return False
    if "@" in rest.partition("/")[0]:  # libpq looks for the user no further than this
        place = rest.partition("@")[2].partition("?")[0].partition("/")[0]
    else:
        place = rest.partition("?")[0]
    port = str(params.get("port") or "").replace(",", "")
    return "@" in place or not (port or "0").isdecimal()


def name_place(url: str) -> str:
    """Return the place in a URL without user and password: host:port/name, or libpq's service.
    Raises ConfigurationError: the URL cannot be read, or names no database."""
    params = parse_url(url)
    if service := params.get("service"):
        return "/".join(filter(None, (f"service {service}", params.get("dbname"))))
    if not params.get("dbname"):
        raise ConfigurationError(
            "a database URL must name its database, as in postgresql://host/name: this one does not"
        )
    host = params.get("host") or params.get("hostaddr") or "local"
    port = f":{params['port']}" if params.get("port") else ""
    return f"{host}{port}/{params['dbname']}"


def format_conninfo(params: dict[str, Any]) -> str:
    return make_conninfo("", **params)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the server or the network into DatabaseUnavailable or ConfigurationError. An
    error of a statement itself stays as it is."""
    try:
        yield
    except (StoreError, *ERRORS) as error:
        known = error if isinstance(error, StoreError) else translate(error)
        if is_of_statement(known):
            raise
        raise unavailable(known) from error


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Turn an error of a statement itself into a RotaError on one line, for a person at a terminal:
    a user's trigger may raise a text of any length, with any characters."""
    try:
        yield
    except (StoreError, psycopg.Error) as error:
        known = error if isinstance(error, StoreError) else translate(error)
        if not is_of_statement(known):
            raise
        advice = RESTORED if known.constraint in ("job_pkey", "action_pkey") else ""
        raise RotaError(f"the database refuses: {known.summary}{advice}") from error


def open_plain(conninfo: str) -> psycopg.Connection:
    """Open a connection in autocommit, without prepared statements: for a short use, perhaps
    through an unknown pooler. Raises psycopg's errors."""
    return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)


async def open_async(conninfo: str, prepare_threshold: int | None = None) -> OwnConnection:
    """As `open_plain`, for the running loop. A statement is prepared after `prepare_threshold`
    runs."""
    settings: dict[str, Any] = {"autocommit": True, "prepare_threshold": prepare_threshold}
    return await OwnConnection.connect(conninfo, **settings)


def wait_for_notification(connection: psycopg.Connection, for_s: float) -> bool:
    """Wait up to `for_s` seconds for a NOTIFY; return whether one came."""
    return bool(list(connection.notifies(timeout=for_s, stop_after=1)))


class OwnConnection(psycopg.AsyncConnection):
    async def wait(  # type: ignore[override]
        self, gen: PQGen[RV], interval: float = 60.0, **more: Any
    ) -> RV:
        """Wait as psycopg does, whose interval of 0.1 s is for signals: here the loop has them.
        `more` is what a release of psycopg has besides: `timeout` since 3.3.5."""
        return await super().wait(gen, interval, **more)

    def driver(self) -> AsyncPsycopgDriver:
        """Return the driver for one operation."""
        return AsyncPsycopgDriver(self)

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open, without a statement and without a transaction."""
        return not self.closed and self.info.transaction_status == pq.TransactionStatus.IDLE

    async def ask_to_cancel(self, timeout_s: float) -> None:
        """Ask the server to cancel the statement. Nothing tells whether the server receives the
        request."""
        with suppress(psycopg.Error, OSError):
            await self.cancel_safe(timeout=timeout_s)

    def cut(self) -> None:
        """Break the connection without the server: a caller that waits for an answer gets an
        error."""
        with suppress(OSError, psycopg.Error):
            copy = os.dup(self.fileno())
            with socket.socket(fileno=copy) as end:
                end.shutdown(socket.SHUT_RDWR)

    async def listen(self, *channels: str) -> None:
        for channel in channels:
            await self.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))


def explain_cancel(limit_s: float) -> psycopg.errors.QueryCanceled:
    """Return the error of a statement cancelled past its limit. The server's own text speaks of a
    user's request, and no user made a request."""
    return psycopg.errors.QueryCanceled(
        f"the statement was cancelled: no answer within {limit_s:g} s"
    )


class Deadline:
    """A limit for a block that waits for one answer. It can be entered again and again.

    Past the limit the server is asked to cancel the statement, which would otherwise wait for locks
    and hold locks. Without an answer to that, the connection is cut and the block raises
    ServerTrouble.
    """

    __slots__ = ("_cancel_s", "_connection", "_has_cut", "_limit_s", "_task", "_timer")

    def __init__(self, connection: OwnConnection, limit_s: float) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._cancel_s = min(CANCEL_S, limit_s / 4)
        self._has_cut = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._lose)

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._has_cut and isinstance(error, Exception):
            raise ServerTrouble(f"no answer within {self._limit_s:g} s") from error
        if self._task is not None and isinstance(error, psycopg.errors.QueryCanceled):
            raise explain_cancel(self._limit_s) from error

    def _lose(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._cut())

    async def _cut(self) -> None:
        await self._connection.ask_to_cancel(self._cancel_s)
        await asyncio.sleep(self._cancel_s)
        self._has_cut = True
        self._connection.cut()
