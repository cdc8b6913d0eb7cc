"""What a job type declares: its options, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rota.errors import UsageError
from rota.model.bounds import NAME_MAX, check_choice, check_integer, check_text
from rota.model.retry import ErrorTypes, RetryPolicy
from rota.model.units import size_bytes

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
History = Literal["all", "failures"]
OnLost = Literal["retry", "dead"]
ExecutorKind = Literal["process"]

LEASE_S_MIN = 1.0
TIMEOUT_S_MIN = 0.001
MAX_MEMORY = "512MiB"
RECYCLE_AFTER = 1_000
MEMORY_BYTES_MIN = 16 * 1024**2
"""Less than an interpreter needs would only kill every job."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job type declares, checked. Durations are seconds."""

    queue: str
    priority: int
    max_attempts: int
    retry: RetryPolicy
    timeout_s: float
    lease_s: float | None
    """None: the App's."""
    expires_s: float | None
    retry_on: ErrorTypes
    fatal_on: ErrorTypes
    version: int | None
    upgrade: Mapping[int, Upgrade]
    aliases: tuple[str, ...]
    key_ttl_s: float
    history: str
    on_lost: str
    process: ProcessSettings | None
    """None: an async function runs on the worker's loop, a plain one in a thread."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """How a handler's own processes are kept."""

    memory_bytes_max: int | None
    """Of resident memory; None: as much as there is."""
    recycle_after: int
    """Jobs, after which a process is replaced by a new one."""


def check_retry(value: Any) -> RetryPolicy:
    if not isinstance(value, RetryPolicy):
        raise UsageError(f"retry must be a retry policy such as rota.Exponential(), not {value!r}")
    return value


def check_process(executor: Any, max_memory: Any, recycle_after: Any) -> ProcessSettings | None:
    if executor is None:
        if (max_memory, recycle_after) != (MAX_MEMORY, RECYCLE_AFTER):
            raise UsageError(
                'max_memory and recycle_after need executor="process": '
                "a thread or a task has no memory of its own"
            )
        return None
    check_choice(executor, "executor", get_args(ExecutorKind))
    return ProcessSettings(
        None
        if max_memory is None
        else size_bytes(max_memory, name="max_memory", least=MEMORY_BYTES_MIN),
        check_integer(recycle_after, "recycle_after", 1, 1_000_000_000),
    )


def check_errors(value: Any, name: str) -> ErrorTypes:
    if not isinstance(value, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in value
    ):
        raise UsageError(f"{name} must be a tuple of exception classes, not {value!r}")
    return value


def check_aliases(value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list):
        raise UsageError(f"aliases must be a tuple of names, not {value!r}")
    return tuple(check_text(alias, "aliases", NAME_MAX) for alias in value)


def check_upgrades(version: int | None, upgrade: Any) -> Mapping[int, Upgrade]:
    if not isinstance(upgrade, Mapping) or not all(map(callable, upgrade.values())):
        raise UsageError(f"upgrade must be a mapping from version to function, not {upgrade!r}")
    if upgrade and set(upgrade) != set(range(1, version or 1)):
        raise UsageError(
            f"upgrade must have a function for each version from 1 to {(version or 1) - 1}, "
            f"not for {sorted(upgrade)}"
        )
    if (version or 1) > 1 and not upgrade:
        raise UsageError(
            f"version {version} needs upgrade={{1: …}}: a function for each older version, "
            "to read payloads that are already stored"
        )
    return dict(upgrade)
