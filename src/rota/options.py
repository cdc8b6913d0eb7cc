"""What can be said of one job when it is enqueued, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypedDict

from rota.duration import Duration, seconds
from rota.errors import PayloadError, UsageError
from rota.payload import Codec

EXPIRES_S_MIN = 0.001
# Of a text in characters. The tables have the same numbers (tests/store/test_limits.py).
NAME_MAX = 200
"""Of a job type, a schedule, a release, an error's class, and of whoever acts."""
QUEUE_MAX = 100
KEY_MAX = 255
WHY_MAX = 500
PRIORITY_MAX = 100
ATTEMPTS_MAX = 10_000


class Options(TypedDict, total=False):
    """What `using` takes. All are optional."""

    run_at: datetime | None
    delay: Duration | None
    priority: int | None
    queue: str | None
    max_attempts: int | None
    expires: Duration | None
    idempotency_key: str | None
    meta: Mapping[str, Any] | None
    connection: Any


@dataclass(frozen=True, slots=True)
class Chosen:
    """Options of one job, checked."""

    run_at: datetime | None = None
    delay_s: float | None = None
    priority: int | None = None
    queue: str | None = None
    max_attempts: int | None = None
    expires_s: float | None = None
    idempotency_key: str | None = None
    meta_json: str | None = None
    connection: Any = None

    def merge(self, options: Options) -> Chosen:
        """These options with others on top; None means as before."""
        changes: dict[str, Any] = {}
        for name, value in options.items():
            if name not in _CHECKS:
                raise UsageError(f"using() takes no option {name!r}; it takes {', '.join(_CHECKS)}")
            if value is not None:
                column, check = _CHECKS[name]
                changes[column] = check(value, name)
        if "run_at" in changes and "delay_s" in changes:
            raise UsageError("give run_at or delay, not both")
        if "run_at" in changes:
            changes["delay_s"] = None
        elif "delay_s" in changes:
            changes["run_at"] = None
        return replace(self, **changes)


LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""What the table takes: every client must be able to read the row, and add an expiry to it."""


def check_aware(value: Any, name: str) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise UsageError(
            f"{name} must be a datetime with a time zone, not {value!r}; the database's clock decides, so say which zone you mean"
        )
    if value >= LATEST:
        raise UsageError(f"{name} must lie before the year {LATEST.year}, not {value!r}")
    return value


def check_integer(value: Any, name: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least:,} to {most:,}, not {value!r}")
    return value


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UsageError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return str(value)


def check_text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most or "\0" in value or not value.isprintable():
        raise UsageError(f"{name} must be 1 to {most} printable characters, not {value!r}")
    return value


def _meta(value: Any, name: str) -> str:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a mapping, not {value!r}")
    try:
        return META.encode((), {"meta": dict(value)})[len('{"meta":') : -1]
    except PayloadError as error:
        raise UsageError(f"{error.argument or name}: {error.reason}") from None


def _callers_meta(meta: dict[str, Any]) -> None: ...


META = Codec.of(_callers_meta, job_type="meta", takes_context=False)


def check_priority(value: Any, name: str) -> int:
    return check_integer(value, name, -PRIORITY_MAX, PRIORITY_MAX)


def check_max_attempts(value: Any, name: str) -> int:
    return check_integer(value, name, 1, ATTEMPTS_MAX)


def check_queue(value: Any, name: str) -> str:
    return check_text(value, name, QUEUE_MAX)


_CHECKS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "run_at": ("run_at", check_aware),
    "delay": ("delay_s", lambda value, name: seconds(value, name=name)),
    "priority": ("priority", check_priority),
    "queue": ("queue", check_queue),
    "max_attempts": ("max_attempts", check_max_attempts),
    "expires": ("expires_s", lambda value, name: seconds(value, name=name, least=EXPIRES_S_MIN)),
    "idempotency_key": ("idempotency_key", lambda value, name: check_text(value, name, KEY_MAX)),
    "meta": ("meta_json", _meta),
    "connection": ("connection", lambda value, name: value),
}
