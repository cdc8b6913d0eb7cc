"""What a driver gives the operations instead of rows.

A driver translates each of its errors once: with `store_error`, or to a class of this file if the
server was never asked. Operations decide by the class. At the border of the store
`translate_for_app` makes an error of `rota.errors`.
"""

from __future__ import annotations

from typing import Any

from rota.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    PayloadError,
    RotaError,
    SchemaError,
    SchemaMissing,
    UsageError,
)
from rota.model.failure import one_line


class StoreError(Exception):
    """A statement failed. In an open transaction everything since its savepoint is lost. `str` is
    the whole text of the driver."""

    def __init__(
        self,
        text: str,
        *,
        name: str = "",
        sqlstate: str | None = None,
        constraint: str | None = None,
        table: str | None = None,
        driver_error: Exception | None = None,
    ) -> None:
        super().__init__(text)
        self.name = name or type(self).__name__
        """The driver's name for the condition, such as `LockNotAvailable`."""
        self.sqlstate = sqlstate
        """None: the error does not come from the server."""
        self.constraint = constraint
        self.table = table
        self.driver_error = self.__cause__ = driver_error
        """The error as the driver raised it, for an application that knows its driver."""

    @property
    def first_line(self) -> str:
        """The text without details, hints and the statement, up to 500 characters."""
        lines = str(self).strip().splitlines()
        return one_line(lines[0]) if lines else self.name

    @property
    def summary(self) -> str:
        """The condition and the first line, fit for a log: `LockNotAvailable: canceling …`."""
        return f"{self.name}: {self.first_line}"


class ServerTrouble(StoreError):
    """The server is away, read-only or out of room. No row is at fault, and none can be written.
    The statement had no effect, unless the connection broke on its commit: that effect is
    unknown."""

    doubt: str | None = None
    """What the application is told if the statement may have been done; None: nothing."""

    @property
    def is_read_only(self) -> bool:
        """Whether the server is read-only, as a former primary is after a failover."""
        return self.sqlstate == READ_ONLY


class SessionShared(ServerTrouble):
    """A prepared statement is missing or wrong: a pooler shares sessions. It had no effect."""


class PoolExhausted(ServerTrouble):
    """No connection became free in time. Nothing was sent."""


class RowLocked(StoreError):
    """The statement waited for another transaction, or took too long, and was cancelled. It had no
    effect; the same statement may succeed later."""


class RowRefused(StoreError):
    """The server refuses the statement, and one row may be the reason; others can be written. It
    had no effect. A retry is refused again, until a person fixes the cause."""


class Unstorable(RowRefused):
    """A value cannot be stored: a NUL, a number out of range, a row that no page or index takes."""


class Unencodable(Unstorable):
    """The connection's encoding lacks a character. Nothing was sent; the transaction continues."""


class PayloadRefused(RowRefused):
    """The payload of a job is over the limit of the schema, or no JSON object."""

    @property
    def reason(self) -> str:
        _, _, refusal = self.first_line.partition("payload ")
        return refusal.removeprefix("is ").removesuffix("; nothing was written")


class ObjectMissing(RowRefused):
    """A table, function or schema is missing: Rota's, or the target of a trigger."""


class PrivilegeMissing(RowRefused):
    """The role may not do this: to Rota's tables, or to the target of a trigger."""


class PartitionMissing(StoreError):
    """The day has no partition yet. The statement had no effect; create it and repeat."""


READ_ONLY = "25006"
INVALID_PARAMETER = "22023"
"""What Rota's SQL functions raise for an invalid argument."""
_CHECK_VIOLATION = "23514"
_AWAY = ("08", "57P")
_SESSION = (*_AWAY, "28", "3D")
"""A server that is away, or a login that is refused. Only an error that ends the session says so of
our server: a user's trigger may ask another server, which is away."""
_WHOLE_SERVER = (READ_ONLY, "53", "58")
"""A server without disk, memory or connections, or with failing files."""
_OF_NO_ROW = (*("25", "40", "42501", "42P01", "42883", "3F000"), *("53", "55", "57", "58"))
"""A right, an object, a lock or the server is what is wrong, not the values of a row."""
_WAITED = ("55P03", "57014", "40P01", "40001")
"""Lock timeout, statement timeout or cancel, deadlock, serialization failure."""
_CLASSES: tuple[tuple[tuple[str, ...], type[StoreError]], ...] = (
    (_WHOLE_SERVER, ServerTrouble),
    (_WAITED, RowLocked),
    (("42P01", "42883", "3F000"), ObjectMissing),
    (("42501",), PrivilegeMissing),
    (("22", "54"), Unstorable),
)


def store_error(text: str, sqlstate: str, *, ends_session: bool, **facts: Any) -> StoreError:
    """Return the StoreError for a server's error, with `facts` of it as StoreError takes them;
    `ends_session`: it is FATAL, or a pooler's."""
    is_away = ends_session and sqlstate.startswith(_SESSION)
    kind = ServerTrouble if is_away else _classify(sqlstate, facts["constraint"], facts["table"])
    return kind(text, sqlstate=sqlstate, **facts)


def _classify(sqlstate: str, constraint: str | None, table: str | None) -> type[StoreError]:
    if sqlstate == _CHECK_VIOLATION:
        if constraint == "job_payload":
            return PayloadRefused
        if not constraint and table in ("job_history", "attempt"):
            return PartitionMissing
    kinds = (kind for states, kind in _CLASSES if sqlstate.startswith(states))
    return next(kinds, RowRefused)


# Translation to rota.errors

_OF_THE_SERVER = (
    *("24", "25", "26", "2B", "2D", "2F", "34", "38", "39", "3B", "40"),
    *("53", "54", "55", "57", "58", "F0", "HV", "XX"),
)
"""The transaction or the server is the reason. Any other SQLSTATE, even a code that a user's
trigger makes up, means that the statement itself is refused."""
_LOGIN = ("28P01", "28000")
_LOGIN_TEXTS = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    'FATAL:  role "',
)
"""Texts of a refused connection, which has no SQLSTATE in psycopg; in English only."""
_POOLER = "a pooler refuses Rota's session settings"


def translate_for_app(error: StoreError, *, is_own: bool) -> Exception:
    """Return the error that the application gets.

    On a connection of Rota's (`is_own`), an absent server or a lasting lock is DatabaseUnavailable.
    On the application's connection it is the driver's error: the application knows what that means
    for its transaction.
    """
    public = _translate_schema(error)
    if public is None and (error.driver_error is None or (is_own and not is_of_statement(error))):
        public = unavailable(error)
    if public is None:
        assert error.driver_error is not None
        return error.driver_error
    public.__cause__ = error.driver_error
    return public


def _translate_schema(error: StoreError) -> RotaError | None:
    match error:
        case PayloadRefused():
            return PayloadError("?", None, error.reason)
        case ObjectMissing():
            why = "the database has no Rota schema, or an older one; run `rota migrate`"
            return SchemaMissing(f"{why} ({error.first_line})")
        case PrivilegeMissing():
            advice = "docs/reference/tables-and-sql.md lists the GRANTs of each role"
            return SchemaError(f"the database role lacks a privilege: {error.first_line}; {advice}")
        case Unencodable():
            return UsageError(str(error))
        case RowRefused(constraint="job_idempotency_key" | "job_group_key"):
            return UsageError(error.first_line.removeprefix("rota.job: "))
    return None


def translate_for_worker(error: StoreError) -> DatabaseUnavailable:
    """Return the error that a loop of a worker gets: always one after which it tries again. A
    worker does not end for a user's trigger or a refused login: its start has checked the rest."""
    is_of_schema = isinstance(error, ObjectMissing | PrivilegeMissing)
    text = (
        f"the database refuses: {_translate_schema(error)}"
        if is_of_schema
        else str(unavailable(error))
    )
    return DatabaseUnavailable(text, refused=not isinstance(error, ServerTrouble))


def unavailable(error: StoreError) -> RotaError:
    """Return what a failed statement or connection means for the caller."""
    if (wrong := _wrong_configuration(error)) is not None:
        return ConfigurationError(wrong)
    if isinstance(error, PoolExhausted):
        return DatabaseUnavailable(f"no connection to the database: {error}")
    verb = "does not answer" if is_away(error) else "refuses"
    text = f"the database {verb}: {error.first_line}"
    if isinstance(error, ServerTrouble):
        if error.is_read_only:
            text += "; the server is read-only (a standby?): connect to the primary"
        if error.doubt is not None:
            return DatabaseUnavailable(f"{text}; {error.doubt}", in_doubt=True)
    return DatabaseUnavailable(text)


def is_away(error: StoreError) -> bool:
    """Whether the server is gone, or says that it goes: what was sent before is uncertain."""
    return isinstance(error, ServerTrouble) and (
        error.sqlstate is None or error.sqlstate.startswith(_AWAY)
    )


def is_of_pooler(error: ConfigurationError) -> bool:
    """Whether this is a pooler that refuses Rota's session settings."""
    return str(error).startswith(_POOLER)


def is_of_statement(error: StoreError) -> bool:
    """Whether the statement itself is refused, whatever state the server is in."""
    if not isinstance(error, RowRefused):
        return False
    return error.sqlstate is None or not error.sqlstate.startswith(_OF_THE_SERVER)


def is_of_row(error: StoreError) -> bool:
    """Whether the values of a row may be what the server refuses."""
    return error.sqlstate is None or not error.sqlstate.startswith(_OF_NO_ROW)


def _wrong_configuration(error: StoreError) -> str | None:
    """Say what is wrong with the URL or with notify; None: nothing that shows here."""
    says = error.first_line
    if isinstance(error, SessionShared):
        wrong = "connections share sessions, as behind a transaction pooler"
        return f"{wrong}; use App(notify=False) ({says})"
    if not isinstance(error, ServerTrouble):
        return None
    text = str(error) if error.sqlstate is None else ""
    if error.sqlstate in _LOGIN or any(sign in text for sign in _LOGIN_TEXTS):
        return f"the database rejects the user or password in the URL: {says}"
    if error.sqlstate == "3D000" or ("database" in text and "does not exist" in text):
        return f"the database in the URL does not exist: {says}"
    if "definition of service" in text:
        return f"the service in the URL is not one of libpq's service file: {says}"
    if "permission denied for database" in text:
        return f"the role in the URL may not connect to the database: {says}"
    if "unsupported startup parameter" in text:
        return f"{_POOLER}; use App(notify=False), and migrate without the pooler ({says})"
    return None
