"""What an error of the driver means in Rota's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg_pool import PoolTimeout

from rota.errors import ConfigurationError, DatabaseUnavailable, PayloadError, RotaError, SchemaError, SchemaMissing


class PartitionMissing(Exception):
    """A finish came before anybody made the day's partition; it makes it and repeats itself."""


@contextmanager
def translated() -> Iterator[None]:
    """On Rota's own connections: turn "the database is not there" into DatabaseUnavailable."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise unavailable(error) from error


# A connection that is refused has no SQLSTATE, only a text; a server that writes in another language is taken for one that does not answer.
_REFUSED = ("authentication failed", "no password supplied", "no pg_hba.conf entry", 'FATAL:  role "')


def unavailable(error: Exception) -> RotaError:
    """What a failure to reach the database means for the caller."""
    if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidAuthorizationSpecification) or any(
        sign in str(error) for sign in _REFUSED
    ):
        return ConfigurationError(f"the database refuses the user or password of the URL: {_first_line(error)}")
    if isinstance(error, psycopg.errors.InvalidCatalogName) or ("database" in str(error) and "does not exist" in str(error)):
        return ConfigurationError(f"the URL names a database that is not there: {_first_line(error)}")
    if "unsupported startup parameter" in str(error):
        return ConfigurationError(
            f"a pooler refuses Rota's session settings: use App(notify=False) behind it, and migrate without it ({_first_line(error)})"
        )
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable(f"no connection to the database: {_first_line(error)}")
    return DatabaseUnavailable(f"the database does not answer: {_first_line(error)}")


def translate(error: psycopg.Error) -> Exception:
    """The same error in Rota's words where it has some; else as it is."""
    constraint = error.diag.constraint_name or ""
    if isinstance(error, psycopg.errors.CheckViolation) and constraint.startswith("job_payload_"):
        why = "larger than the limit; store it elsewhere and pass a reference" if constraint.endswith("small") else "not a JSON object"
        return PayloadError("?", None, why).with_traceback(error.__traceback__)
    if isinstance(error, psycopg.errors.CheckViolation) and not constraint and error.diag.table_name in ("job_history", "attempt"):
        return PartitionMissing(_first_line(error))
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedFunction | psycopg.errors.InvalidSchemaName):
        return SchemaMissing(f"the database has no Rota schema, or an older one: run `rota migrate` ({_first_line(error)})")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return SchemaError(f"the database role lacks a privilege: {_first_line(error)}; docs/sql-contract.md lists the GRANTs of each role")
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
