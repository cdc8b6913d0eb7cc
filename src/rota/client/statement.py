"""The SQL of one enqueue, for a client that no driver knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.errors import UsageError
from rota.store.driver import format_params
from rota.store.ops import CommonColumns, NewRow
from rota.store.paramstyle import PARAMSTYLES, mark_parameters

_TYPES = {
    "job_type": "text",
    "payload": "jsonb",
    "queue": "text",
    "priority": "int",
    "max_attempts": "int",
    "idempotency_key": "text",
    "meta": "jsonb",
    "payload_version": "int",
    "timeout": "interval",
    "on_duplicate": "text",
    "group_key": "text",
    "group_capacity": "int",
}
"""The arguments of `rota.enqueue` that a job has as they are, and their types."""


def make_statement(row: NewRow, schema: str, paramstyle: str) -> tuple[str, Any]:
    """Return a call of `rota.enqueue` and its parameters, each a text or None. The text has no
    percent sign, question mark or colons of casts, which a client could take for a parameter.
    Raises UsageError for an unknown style."""
    if paramstyle not in PARAMSTYLES:
        raise UsageError(
            f"there is no paramstyle {paramstyle!r}; there are {', '.join(PARAMSTYLES)}"
        )
    columns = row.columns()
    given = {name: columns[name] for name in _TYPES if columns[name] is not None}
    if row.idempotency_key is None:
        del given["on_duplicate"]
    arguments = {name: _cast(name, _TYPES[name]) for name in given}
    due = _due(row.common, schema)
    if due is not None:
        arguments["run_at"] = due
    if row.common.expires_s is not None:
        earliest = f"{schema}.clock()" if due is None else f"greatest({schema}.clock(), {due})"
        arguments["expires_at"] = f"{earliest} + {_cast('expires', 'interval')}"
    times = {
        "run_at": row.common.run_at,
        "delay": _seconds(row.common.delay_s),
        "expires": _seconds(row.common.expires_s),
    }
    given |= {name: value for name, value in times.items() if value is not None}
    listed = ",\n".join(f"  {name} => {value}" for name, value in arguments.items())
    text = f"select id, created, status, change\nfrom {schema}.enqueue(\n{listed}\n)"
    return mark_parameters(text, format_params(given), paramstyle)


def _due(common: CommonColumns, schema: str) -> str | None:
    if common.run_at is not None:
        return _cast("run_at", "timestamptz")
    if common.delay_s is not None:
        return f"{schema}.clock() + {_cast('delay', 'interval')}"
    return None


def _cast(name: str, kind: str) -> str:
    # First to text: a client that asks the server for the type sends what it was given.
    as_text = f"cast(%({name})s as text)"
    return as_text if kind == "text" else f"cast({as_text} as {kind})"


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)
