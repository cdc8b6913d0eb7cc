"""Options of a job type that belong together: `unique`, `ordered` and `process`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, TypeVar, get_args

from rota.declare.key import check_function
from rota.declare.option import OptionKind, choice, duration, whole
from rota.errors import UsageError
from rota.model.units import Duration, Size, size_bytes

KeyFunction = Callable[..., str] | str
"""A function of the handler's arguments, or a text with their names: "welcome:{user_id}"."""
Scope = Literal["ttl", "live", "pending"]
OnDuplicate = Literal["keep", "replace", "postpone", "raise"]
WhileRetrying = Literal["hold", "release"]
AfterDeath = Literal["continue", "halt"]
Group = TypeVar("Group")

CAPACITY_MAX = 1_000
MEMORY_BYTES_MIN = 16 * 1024**2
"""An interpreter needs more than this: a lower limit would kill every job."""


def _function(example: str) -> OptionKind:
    check = partial(check_function, example=example)
    return OptionKind("text or function", "takes arguments of the handler, by name", check)


def _check_memory(value: Any, name: str) -> int | None:
    return None if value is None else size_bytes(value, name=name, least=MEMORY_BYTES_MIN)


UNIQUE_KEY, GROUP_KEY = _function("welcome:{user_id}"), _function("user:{user_id}")
SCOPE, TTL = choice(*get_args(Scope)), duration(0.0)
ON_DUPLICATE = choice(*get_args(OnDuplicate))
CAPACITY = whole(1, CAPACITY_MAX, "jobs")
WHILE_RETRYING, AFTER_DEATH = choice(*get_args(WhileRetrying)), choice(*get_args(AfterDeath))
MEMORY = OptionKind("size", "16 MiB …", _check_memory)
RECYCLE_AFTER = whole(1, 1_000_000_000, "jobs")


@dataclass(frozen=True)
class Unique:
    """At most one job for each key: an enqueue with a taken key inserts nothing.

    Raises UsageError for a value out of range.
    """

    key: KeyFunction | None = None
    """What makes each job's key from the handler's arguments: a text with their names, as in
    `"welcome:{user_id}"`, or a function of them. A key that a call gives counts instead. Defaults
    to none: only calls give keys."""
    scope: Scope = "ttl"
    """How long a key is held: `ttl`, while the job is live or dead and for `ttl` after its success;
    `live`, until the job has succeeded or is dead; or `pending`, until it starts for the first
    time. Defaults to "ttl"."""
    ttl: Duration = "90d"
    """With `scope="ttl"`: how long after success a key is taken, 0 … 100 years. Defaults to 90
    days."""
    on_duplicate: OnDuplicate = "keep"
    """What an enqueue does if another job has the key: `keep` that job as it is; `replace` its
    payload or `postpone` it, if it is queued; or `raise` KeyTaken. Defaults to "keep"."""

    def __post_init__(self) -> None:
        UNIQUE_KEY.check(self.key, "the key of unique")
        SCOPE.check(self.scope, "scope")
        ON_DUPLICATE.check(self.on_duplicate, "on_duplicate")
        if TTL.check(self.ttl, "ttl") != TTL.check("90d", "ttl") and self.scope != "ttl":
            when = "starts" if self.scope == "pending" else "has succeeded"
            raise UsageError(
                f'ttl needs scope="ttl": with "{self.scope}" a key is free when its job {when}'
            )


@dataclass(frozen=True)
class Ordered:
    """An ordered group for each group key: its jobs, of whatever type and queue, run in the order
    of becoming due. Raises UsageError for a value out of range."""

    key: KeyFunction | None = None
    """What makes each job's group key from the handler's arguments: a text with their names, as in
    `"invoice:{invoice}"`, or a function of them. A group key that a call gives counts instead.
    Defaults to none: only calls give group keys."""
    capacity: int = 1
    """How many jobs of a group may run at once when a job of this type begins, 1 … 1,000. Defaults
    to 1."""
    while_retrying: WhileRetrying = "hold"
    """Whether a job that waits for another attempt keeps its place: `hold` keeps it, so that the
    order is strict; `release` lets later jobs of the group run meanwhile. Defaults to "hold"."""
    after_death: AfterDeath = "continue"
    """What a dead job does to its group: `continue` lets the next job run, `halt` keeps its place
    until you retry or archive it. Defaults to "continue"."""

    def __post_init__(self) -> None:
        GROUP_KEY.check(self.key, "the key of ordered")
        CAPACITY.check(self.capacity, "capacity")
        WHILE_RETRYING.check(self.while_retrying, "while_retrying")
        AFTER_DEATH.check(self.after_death, "after_death")


CLUSTERS = {"dask": "rota.integrations.dask"}
"""The module that starts processes on a cluster, by the cluster's name. Imported on demand."""


@dataclass(frozen=True)
class Process:
    """The handler runs in a process of its own: for work that needs the CPU, and for code that must
    be killed to stop. Raises UsageError for a value out of range."""

    max_memory: Size | None = "512MiB"
    """Most resident memory, checked twice a second: the process is killed above it. At least 16
    MiB; None: no limit. Defaults to 512 MiB."""
    recycle_after: int = 1_000
    """Jobs after which a process is replaced, 1 … 1,000,000,000. Defaults to 1,000. On a cluster
    each job has a new process."""
    cluster: str | None = None
    """"dask": the process runs on a host of a Dask cluster (extra `dask`). Defaults to the worker's
    own host."""

    def __post_init__(self) -> None:
        MEMORY.check(self.max_memory, "max_memory")
        RECYCLE_AFTER.check(self.recycle_after, "recycle_after")
        if self.cluster not in (None, *CLUSTERS):
            raise UsageError(f'cluster must be "dask" or None, not {self.cluster!r}')

    @cached_property
    def memory_bytes_max(self) -> int | None:
        """Most bytes of resident memory; None: no limit."""
        return _check_memory(self.max_memory, "max_memory")


def read_process(value: Any) -> Process | None:
    """Return what `process=` says. Raises UsageError."""
    if isinstance(value, Process):
        return value
    if not isinstance(value, bool):
        raise UsageError(f"process must be True, False or a rota.Process(…), not {value!r}")
    return Process() if value else None


def read_group(value: Any, kind: Callable[..., Group], name: str) -> Group:
    """Return what `unique=` or `ordered=` says; None: the usual rules. Raises UsageError."""
    if isinstance(value, kind):  # type: ignore[arg-type]
        return value  # type: ignore[no-any-return]
    if value is not None and not callable(value) and not isinstance(value, str):
        raise UsageError(
            f"{name} must be a text with names of the handler's arguments in braces, a function of "
            f"them, or a rota.{name.capitalize()}(…), not {value!r}"
        )
    return kind(value)
