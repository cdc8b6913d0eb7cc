"""What an error of the driver means in Rota's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg_pool import PoolTimeout

from rota.errors import ConfigurationError, DatabaseUnavailable, PayloadError, RotaError, SchemaError, SchemaMissing
from rota.resources import lack, lack_of_files
from rota.store.pools import POOL_MAX


class PartitionMissing(Exception):
    """A finish came before anybody made the day's partition; it makes it and repeats itself."""


@contextmanager
def translated() -> Iterator[None]:
    """On Rota's own connections: turn "the database is not there" into DatabaseUnavailable."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise unavailable(error) from error
    except psycopg.ProgrammingError as error:
        if is_of_shared_session(error):
            raise unavailable(error) from error
        raise


@contextmanager
def refused() -> Iterator[None]:
    """On a worker's connections: turn whatever the database says into DatabaseUnavailable. A worker does not end because a trigger of the user's
    raised something, nor because a login is refused for a while: that the schema and the configuration are right was looked at when it started. It
    tries again, and says what was said."""
    try:
        yield
    except (psycopg.Error, PayloadError, ConfigurationError, PartitionMissing) as error:
        said = error if isinstance(error, ConfigurationError) else unavailable(error)
        reason = f"the database refuses: {said}" if isinstance(said, SchemaError) else str(said)
        is_login = isinstance(error, ConfigurationError) and not isinstance(error, SchemaError)
        raise DatabaseUnavailable(reason, refused=not is_login and blames_rows(error)) from error
    except (OSError, RuntimeError) as error:
        missing = lack(error)
        if missing is None:
            raise
        raise DatabaseUnavailable(f"no connection to the database: this process is out of {missing}: {error}") from error


def blames_rows(error: Exception) -> bool:
    """Whether the server is there and what it refuses may be one row's fault: then the others can be written without it."""
    if not isinstance(error, psycopg.Error):
        return True  # one that we have put into words of our own
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)  # the driver itself could not send it
    return not error.sqlstate.startswith(_WHOLE_SERVER)


def is_waiting(error: Exception) -> bool:
    """Whether the statement was given up because it took too long, or stood in another's way."""
    return isinstance(error, _WAITING)


_WAITING = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)
# A connection that is refused has no SQLSTATE, only a text; a server that writes in another language is taken for one that does not answer.
_GOING = ("08", "57P")
"""SQLSTATEs of a server that goes down, comes up, or cannot be reached."""
_WHOLE_SERVER = (*_GOING, "25006", "53", "58", "28", "3D")
"""And of one that is read-only, out of disk, memory or connections, or whose files fail: no row can be written."""
_REFUSED = ("authentication failed", "no password supplied", "no pg_hba.conf entry", 'FATAL:  role "')


_OF_POOLER = "a pooler refuses Rota's session settings"
_PREPARED = "_pg3_"
"""How the driver names what it prepares, whatever the language of the server's messages."""


def is_of_shared_session(error: Exception) -> bool:
    """Whether a prepared statement was not there, was there already, or was another one: as behind a transaction pooler that lets the startup options
    pass and drops them, so that the connection itself was not refused."""
    return getattr(error, "sqlstate", None) in ("26000", "42P05", "08P01") and _PREPARED in str(error)


def unavailable(error: Exception) -> RotaError:
    """What a failure to reach the database means for the caller."""
    state = getattr(error, "sqlstate", None)
    text = str(error) if state is None else ""
    if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidAuthorizationSpecification) or any(
        sign in text for sign in _REFUSED
    ):
        return ConfigurationError(f"the database refuses the user or password of the URL: {first_line(error)}")
    if isinstance(error, psycopg.errors.InvalidCatalogName) or ("database" in text and "does not exist" in text):
        return ConfigurationError(f"the URL names a database that is not there: {first_line(error)}")
    if "permission denied for database" in text:
        return ConfigurationError(f"the role of the URL may not connect to its database: {first_line(error)}")
    if "unsupported startup parameter" in text:
        return ConfigurationError(f"{_OF_POOLER}: use App(notify=False) behind it, and migrate without it ({first_line(error)})")
    if is_of_shared_session(error):
        return ConfigurationError(
            f"connections share sessions, as behind a transaction pooler: use App(notify=False) behind it ({first_line(error)})"
        )
    if state is None and (missing := lack_of_files()) is not None:
        return DatabaseUnavailable(f"no connection to the database: this process is out of {missing} ({first_line(error)})")
    if isinstance(error, PoolTimeout):
        why = f"it cannot be reached, or all {POOL_MAX} that the App may have were in use"
        return DatabaseUnavailable(f"no connection to the database: {why} ({first_line(error)})")
    says = "does not answer" if isinstance(error, psycopg.Error) and (state is None or state.startswith(_GOING)) else "refuses"
    return DatabaseUnavailable(f"the database {says}: {first_line(error)}")


def is_of_pooler(error: ConfigurationError) -> bool:
    """Whether this is a pooler that refuses Rota's session settings."""
    return str(error).startswith(_OF_POOLER)


def translate(error: psycopg.Error) -> Exception:
    """The same error in Rota's words where it has some; else as it is."""
    constraint = error.diag.constraint_name or ""
    if isinstance(error, psycopg.errors.CheckViolation) and constraint.startswith("job_payload_"):
        why = "larger than the limit; store it elsewhere and pass a reference" if constraint.endswith("small") else "not a JSON object"
        return PayloadError("?", None, why).with_traceback(error.__traceback__)
    if isinstance(error, psycopg.errors.CheckViolation) and not constraint and error.diag.table_name in ("job_history", "attempt"):
        return PartitionMissing(first_line(error))
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedFunction | psycopg.errors.InvalidSchemaName):
        return SchemaMissing(f"the database has no Rota schema, or an older one: run `rota migrate` ({first_line(error)})")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return SchemaError(f"the database role lacks a privilege: {first_line(error)}; docs/sql-contract.md lists the GRANTs of each role")
    return error


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
