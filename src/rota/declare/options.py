"""What can be said of one job when it is enqueued, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict

from rota.declare.payload import Codec
from rota.errors import PayloadError, UsageError
from rota.model.bounds import (
    EXPIRES_S_MIN,
    KEY_MAX,
    check_aware,
    check_max_attempts,
    check_priority,
    check_queue,
    check_text,
)
from rota.model.units import Duration, seconds


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


def _meta(value: Any, name: str) -> str:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a mapping, not {value!r}")
    try:
        return META.encode((), {"meta": dict(value)})[len('{"meta":') : -1]
    except PayloadError as error:
        raise UsageError(f"{error.argument or name}: {error.reason}") from None


def _callers_meta(meta: dict[str, Any]) -> None: ...


META = Codec.of(_callers_meta, job_type="meta", takes_context=False)


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
