"""The options of a job type, and those of one job: each declared and documented once, and checked.

A `TypedDict` is what a caller writes; the frozen class beside it is what the checks make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypedDict, get_args

import msgspec

from rota.declare.breaker import Breaker, check_breaker
from rota.declare.connection import AnyConnection
from rota.declare.payload import Codec
from rota.declare.rate_limit import RateLimit, check_rate_limit
from rota.errors import PayloadError, UsageError
from rota.model import awaited, batch
from rota.model.bounds import (
    EXPIRES_S_MIN,
    KEY_MAX,
    NAME_MAX,
    check_aware,
    check_bool,
    check_choice,
    check_integer,
    check_max_attempts,
    check_priority,
    check_queue,
    check_text,
)
from rota.model.retry import DEFAULT_MAX_ATTEMPTS, DEFAULT_RETRY, Errors, RetryPolicy
from rota.model.units import Duration, Size, seconds, size_bytes

KeyFunction = Callable[..., str]
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
History = Literal["all", "failures"]
OnLost = Literal["retry", "dead"]
OnExpired = Literal["dead", "drop"]
OnRetry = Literal["hold", "release"]
OnDead = Literal["free", "halt"]
KeyScope = Literal["ttl", "pending"]
OnDuplicate = Literal["join", "replace", "postpone", "raise"]
ExecutorKind = Literal["process"]

LEASE_S_MIN = 1.0
TIMEOUT_S_MIN = 0.001
VERSION_MAX = 32_767
LANE_CAPACITY_MAX = 1_000
CONCURRENCY_MAX = 100_000
MEMORY_BYTES_MIN = 16 * 1024**2
"""An interpreter needs more than this: a lower limit would only kill every job."""


# Of a job type


class JobOptions(TypedDict, total=False):
    """The options of a job type, as `job(…)` takes them. All are optional."""

    queue: str
    """Where its jobs wait: 1 … 100 printable characters. Defaults to "default"."""
    priority: int
    """−100 … 100; higher runs first within a queue. Defaults to 0."""
    max_attempts: int
    """Charged attempts after which a job is dead, 1 … 10,000. Defaults to 10."""
    retry: RetryPolicy
    """How long to wait after a failed attempt. Defaults to `rota.Exponential("10s", cap="1h")`."""
    timeout: Duration
    """The longest an attempt may run, at least 1 ms. Defaults to 5 minutes."""
    lease: Duration | None
    """How long a claim holds a job, at least 1 s; renewed at each third of it. Take 5 to 20 times a
    typical run. Defaults to the App's."""
    expires: Duration | None
    """How long after `run_at` a job may still start, at least 1 ms; then `on_expired` says what
    becomes of it. Defaults to no limit."""
    on_expired: OnExpired
    """What becomes of a job that was not started in time: `dead`, for a person to look at, or
    `drop`: it is cancelled, and its idempotency key is free. Defaults to "dead"."""
    retry_on: Errors
    """Exception classes, and status codes of HTTP or SMTP, worth another attempt. Defaults to
    none."""
    fatal_on: Errors
    """Exception classes and status codes after which no attempt can succeed: the job is dead at
    once. Defaults to none."""
    version: int | None
    """The version of the payload that `enqueue` stores, 1 … 32,767. Defaults to none, which means
    1."""
    upgrade: Mapping[int, Upgrade] | None
    """For each version from 1 to `version` − 1 a function that turns a stored payload of that
    version into one of the next. Defaults to none."""
    aliases: tuple[str, ...]
    """Former names. Their jobs run here, and their idempotency keys move along. Defaults to
    none."""
    key: KeyFunction | None
    """A function that makes each job's idempotency key from the handler's arguments that it names,
    as in `lambda user_id: f"welcome:{user_id}"`. A key that a call gives counts instead. Defaults
    to none."""
    on_duplicate: OnDuplicate
    """What an enqueue does if another job has the key: `join` it; `replace` its payload or
    `postpone` it, if it is queued; or `raise` KeyTaken. Defaults to "join"."""
    key_scope: KeyScope
    """How long a key is held: `ttl`, while the job is live or dead and for `key_ttl` after its
    success; or `pending`, until the job starts for the first time. Defaults to "ttl"."""
    key_ttl: Duration
    """How long after success an idempotency key stays taken. Defaults to 90 days."""
    group_key: KeyFunction | None
    """A function that makes each job's group key from the handler's arguments that it names, as in
    `lambda invoice: f"invoice:{invoice}"`. Jobs with one group key, of whatever type and queue, are
    a lane: they run in the order of becoming due. A group key that a call gives counts instead.
    Defaults to none."""
    lane_capacity: int
    """How many jobs of its lane may run at once when one of these begins, 1 … 1,000. Like the next
    two it is for jobs that have a group key. Defaults to 1."""
    on_retry: OnRetry
    """Whether a job that waits for another attempt keeps its place in its lane: `hold` keeps it, so
    that the order is strict; `release` lets later jobs of the lane run meanwhile. Defaults to
    "hold"."""
    on_dead: OnDead
    """What a dead job does to its lane: `free` lets the next one run, `halt` keeps its place until
    a person requeues or ignores it. Defaults to "free"."""
    concurrency: int | None
    """Most jobs of the type that run at once, over all workers, 1 … 100,000. Defaults to no
    limit."""
    transactional: bool
    """Whether an enqueue must be part of a transaction of the caller's: without a connection, or
    without an open transaction on it, it is refused. Defaults to False."""
    history: History
    """Whether a success leaves a row in history: `all`, or only `failures`. Defaults to "all"."""
    on_lost: OnLost
    """What becomes of a job whose worker was lost after the job had begun: `retry` by its policy,
    or `dead`. Defaults to "retry"."""
    breaker: Breaker | None
    """A circuit breaker: when the endpoint that its jobs call fails again and again, they wait, and
    then one tries. Defaults to none."""
    rate_limit: RateLimit | None
    """A limit of how often its jobs start, shared by all workers and all types that name it.
    Defaults to none."""
    executor: ExecutorKind | None
    """`process`: in a process of its own. Defaults to none: an async function runs on the worker's
    loop, a plain one in a thread."""
    max_memory: Size | None
    """With `executor="process"`: resident memory past which the process is killed, at least
    16 MiB; None: no limit. Defaults to 512 MiB."""
    recycle_after: int
    """With `executor="process"`: jobs after which a process is replaced by a new one,
    1 … 1,000,000,000. Defaults to 1,000."""


JOB_DEFAULTS: JobOptions = {
    "queue": "default",
    "priority": 0,
    "max_attempts": DEFAULT_MAX_ATTEMPTS,
    "retry": DEFAULT_RETRY,
    "timeout": "5m",
    "lease": None,
    "expires": None,
    "on_expired": "dead",
    "retry_on": (),
    "fatal_on": (),
    "version": None,
    "upgrade": None,
    "aliases": (),
    "key": None,
    "on_duplicate": "join",
    "key_scope": "ttl",
    "key_ttl": "90d",
    "group_key": None,
    "lane_capacity": 1,
    "on_retry": "hold",
    "on_dead": "free",
    "concurrency": None,
    "transactional": False,
    "history": "all",
    "on_lost": "retry",
    "breaker": None,
    "rate_limit": None,
    "executor": None,
    "max_memory": "512MiB",
    "recycle_after": 1_000,
}


@dataclass(frozen=True, slots=True)
class JobTypeOptions:
    """The options of a job type, checked. Durations are seconds."""

    queue: str
    priority: int
    max_attempts: int
    retry: RetryPolicy
    timeout_s: float
    lease_s: float | None
    """None: the App's."""
    expires_s: float | None
    retry_on: Errors
    fatal_on: Errors
    version: int | None
    upgrade: Mapping[int, Upgrade]
    aliases: tuple[str, ...]
    key: KeyFunction | None
    on_duplicate: str
    key_scope: str
    key_ttl_s: float
    group_key: KeyFunction | None
    lane_capacity: int
    on_retry: str
    on_dead: str
    concurrency: int | None
    """Over all workers; None: no limit."""
    transactional: bool
    history: str
    on_lost: str
    on_expired: str
    breaker: Breaker | None
    rate_limit: RateLimit | None
    process: ProcessOptions | None
    """None: an async function runs on the worker's loop, a plain one in a thread."""

    @classmethod
    def check(cls, options: JobOptions) -> JobTypeOptions:
        """Check the options of a job type. Raises UsageError for one that is unknown or out of
        range."""
        if unknown := sorted(options.keys() - JOB_DEFAULTS.keys()):
            raise UsageError(
                f"there is no option {unknown[0]!r}; there are {', '.join(JOB_DEFAULTS)}"
            )
        given: JobOptions = {**JOB_DEFAULTS, **options}
        version = _check_version(given["version"])
        return cls(
            queue=check_queue(given["queue"], "queue"),
            priority=check_priority(given["priority"], "priority"),
            max_attempts=check_max_attempts(given["max_attempts"], "max_attempts"),
            retry=_check_retry(given["retry"]),
            timeout_s=seconds(given["timeout"], name="timeout", least=TIMEOUT_S_MIN),
            lease_s=_check_duration(given["lease"], "lease", LEASE_S_MIN),
            expires_s=_check_duration(given["expires"], "expires", EXPIRES_S_MIN),
            retry_on=check_errors(given["retry_on"], "retry_on"),
            fatal_on=check_errors(given["fatal_on"], "fatal_on"),
            version=version,
            upgrade=_check_upgrades(version, given["upgrade"] or {}),
            aliases=_check_aliases(given["aliases"]),
            key=_check_function(given["key"], "key", "welcome:{user_id}"),
            on_duplicate=check_choice(given["on_duplicate"], "on_duplicate", get_args(OnDuplicate)),
            key_scope=_check_key_scope(given),
            key_ttl_s=seconds(given["key_ttl"], name="key_ttl"),
            group_key=_check_function(given["group_key"], "group_key", "user:{user_id}"),
            lane_capacity=_check_lane_capacity(given["lane_capacity"], "lane_capacity"),
            on_retry=check_choice(given["on_retry"], "on_retry", get_args(OnRetry)),
            on_dead=check_choice(given["on_dead"], "on_dead", get_args(OnDead)),
            concurrency=_check_concurrency(given["concurrency"]),
            transactional=check_bool(given["transactional"], "transactional"),
            history=check_choice(given["history"], "history", get_args(History)),
            on_lost=check_choice(given["on_lost"], "on_lost", get_args(OnLost)),
            on_expired=check_choice(given["on_expired"], "on_expired", get_args(OnExpired)),
            breaker=check_breaker(given["breaker"]),
            rate_limit=check_rate_limit(given["rate_limit"]),
            process=ProcessOptions.check(given),
        )


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How the processes of a handler are kept."""

    memory_bytes_max: int | None
    """Of resident memory; None: no limit."""
    recycle_after: int
    """Number of jobs after which a process is replaced by a new one."""

    @classmethod
    def check(cls, given: JobOptions) -> ProcessOptions | None:
        """Check the options of processes; None where the handler has none. Raises UsageError."""
        max_memory, recycle_after = given["max_memory"], given["recycle_after"]
        if given["executor"] is None:
            defaults = (JOB_DEFAULTS["max_memory"], JOB_DEFAULTS["recycle_after"])
            if (max_memory, recycle_after) != defaults:
                raise UsageError(
                    'max_memory and recycle_after need executor="process": '
                    "a thread or a task has no memory of its own"
                )
            return None
        check_choice(given["executor"], "executor", get_args(ExecutorKind))
        return cls(
            None
            if max_memory is None
            else size_bytes(max_memory, name="max_memory", least=MEMORY_BYTES_MIN),
            check_integer(recycle_after, "recycle_after", 1, 1_000_000_000),
        )


def _check_version(value: Any) -> int | None:
    return None if value is None else check_integer(value, "version", 1, VERSION_MAX)


def _check_duration(value: Duration | None, name: str, least: float) -> float | None:
    return None if value is None else seconds(value, name=name, least=least)


def _check_retry(value: Any) -> RetryPolicy:
    if not isinstance(value, RetryPolicy):
        raise UsageError(f"retry must be a retry policy such as rota.Exponential(), not {value!r}")
    return value


def check_errors(value: Any, name: str) -> Errors:
    if not isinstance(value, tuple) or not all(map(_is_error, value)):
        raise UsageError(
            f"{name} must be a tuple of exception classes and status codes (100 to 599), "
            f"not {value!r}"
        )
    return value


def _is_error(given: Any) -> bool:
    if isinstance(given, type):
        return issubclass(given, BaseException)
    return isinstance(given, int) and not isinstance(given, bool) and 100 <= given <= 599


def _check_function(value: Any, name: str, example: str) -> KeyFunction | None:
    if value is not None and not callable(value):
        raise UsageError(
            f"{name} must be a function of the handler's arguments, "
            f"as in lambda user_id: f'{example}', not {value!r}"
        )
    return value  # type: ignore[no-any-return]


def _check_lane_capacity(value: Any, name: str) -> int:
    return check_integer(value, name, 1, LANE_CAPACITY_MAX)


def _check_concurrency(value: Any) -> int | None:
    return None if value is None else check_integer(value, "concurrency", 1, CONCURRENCY_MAX)


def _check_key_scope(given: JobOptions) -> str:
    scope = check_choice(given["key_scope"], "key_scope", get_args(KeyScope))
    if scope == "pending" and given["key_ttl"] != JOB_DEFAULTS["key_ttl"]:
        raise UsageError(
            'key_ttl needs key_scope="ttl": with "pending" a key is free when its job starts'
        )
    return scope


def _check_aliases(value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list):
        raise UsageError(f"aliases must be a tuple of names, not {value!r}")
    return tuple(check_text(alias, "aliases", NAME_MAX) for alias in value)


def _check_upgrades(version: int | None, upgrade: Any) -> Mapping[int, Upgrade]:
    if not isinstance(upgrade, Mapping) or not all(map(callable, upgrade.values())):
        raise UsageError(f"upgrade must be a mapping from version to function, not {upgrade!r}")
    if upgrade and set(upgrade) != set(range(1, version or 1)):
        raise UsageError(
            "upgrade must have a function for each version "
            f"from 1 to {(version or 1) - 1}, not for {sorted(upgrade)}"
        )
    if (version or 1) > 1 and not upgrade:
        raise UsageError(
            f"version {version} needs upgrade={{1: …}}: a function for each older version, "
            "to read payloads that are already stored"
        )
    return dict(upgrade)


# Of one job


class UsingOptions(TypedDict, total=False):
    """The options of one job, as `using(…)` takes them. All are optional; None leaves one as it
    was."""

    run_at: datetime | None
    """The earliest time to run: an aware datetime; one in the past means now. Defaults to now, by
    the database's clock."""
    delay: Duration | None
    """The same as a duration from now. Not together with `run_at`."""
    priority: int | None
    """−100 … 100; higher runs first within a queue. Defaults to the type's."""
    queue: str | None
    """Where the job waits: 1 … 100 printable characters. Defaults to the type's."""
    max_attempts: int | None
    """Charged attempts after which the job is dead, 1 … 10,000. Defaults to the type's when an
    attempt is settled."""
    timeout: Duration | None
    """The longest an attempt of it may run, at least 1 ms. Defaults to the type's."""
    expires: Duration | None
    """How long after `run_at` it may still start, at least 1 ms. Defaults to the type's."""
    idempotency_key: str | None
    """1 … 255 printable characters. A second job of the type with the same key is not inserted.
    Defaults to what the type's `key` makes, otherwise to none."""
    on_duplicate: OnDuplicate | None
    """What to do if another job has the key. Defaults to the type's."""
    group_key: str | None
    """1 … 255 printable characters. Jobs with one group key run in the order of becoming due.
    Defaults to what the type's `group_key` makes, otherwise to none."""
    lane_capacity: int | None
    """How many jobs of its lane may run at once when it begins, 1 … 1,000. Defaults to the
    type's."""
    meta: Mapping[str, Any] | None
    """A mapping kept with the job, in JSON, at most as large as a payload; no handler argument."""
    connection: AnyConnection | None
    """A connection or session of psycopg, asyncpg, SQLAlchemy or Django whose transaction the
    INSERT joins; it is never committed, rolled back or closed. Defaults to one of the App's."""


class EnqueueOptions(msgspec.Struct, frozen=True):
    """The options of one job, checked."""

    run_at: datetime | None = None
    delay_s: float | None = None
    priority: int | None = None
    queue: str | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    expires_s: float | None = None
    on_duplicate: str | None = None
    lane_capacity: int | None = None
    meta_json: str | None = None
    # From here on what a job often has of its own, OWN fields.
    idempotency_key: str | None = None
    group_key: str | None = None
    connection: Any = None

    def update(
        self, options: UsingOptions, connection: AnyConnection | None = None
    ) -> EnqueueOptions:
        """Return these options with others on top; None means as before. Raises UsageError."""
        changes: dict[str, Any] = {}
        if connection is not None:
            if options.get("connection") is not None:
                raise UsageError("using() takes one connection, by position or by name")
            changes["connection"] = connection
        for name, value in options.items():
            if name not in _USING:
                raise UsageError(f"using() takes no option {name!r}; it takes {', '.join(_USING)}")
            if value is not None:
                column, check = _USING[name]
                changes[column] = check(value, name)
        if "run_at" in changes and "delay_s" in changes:
            raise UsageError("give run_at or delay, not both")
        if "run_at" in changes:
            changes["delay_s"] = None
        elif "delay_s" in changes:
            changes["run_at"] = None
        return msgspec.structs.replace(self, **changes)

    def add_meta(self, meta: Mapping[str, Any] | None) -> EnqueueOptions:
        """Return these options with more meta; a name that they have counts before it."""
        if not meta:
            return self
        own = {} if self.meta_json is None else msgspec.json.decode(self.meta_json)
        return self.update({"meta": {**meta, **own}})


OWN = 3
"""So many of the last fields of EnqueueOptions do not say what jobs have in common."""

_OF_ONE_JOB = (awaited.META_KEY, batch.META_KEY)
"""What Rota writes into the meta of a job about that job. A handler that gives its own meta to the
jobs that it enqueues does not give them this."""


def _encode_meta(value: Any, name: str) -> str:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a mapping, not {value!r}")
    try:
        meta = {key: one for key, one in value.items() if key not in _OF_ONE_JOB}
        return META.encode((), {"meta": meta})[len('{"meta":') : -1]
    except PayloadError as error:
        raise UsageError(f"{error.argument or name}: {error.reason}") from None


def _takes_meta(meta: dict[str, Any]) -> None: ...


META = Codec.of(_takes_meta, job_type="meta", takes_context=False)


def _check_timeout(value: Any, name: str) -> timedelta:
    return timedelta(seconds=seconds(value, name=name, least=TIMEOUT_S_MIN))


_USING: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "run_at": ("run_at", check_aware),
    "delay": ("delay_s", lambda value, name: seconds(value, name=name)),
    "priority": ("priority", check_priority),
    "queue": ("queue", check_queue),
    "max_attempts": ("max_attempts", check_max_attempts),
    "timeout": ("timeout", _check_timeout),
    "expires": ("expires_s", lambda value, name: seconds(value, name=name, least=EXPIRES_S_MIN)),
    "idempotency_key": ("idempotency_key", partial(check_text, most=KEY_MAX)),
    "on_duplicate": (
        "on_duplicate",
        lambda value, name: check_choice(value, name, get_args(OnDuplicate)),
    ),
    "group_key": ("group_key", partial(check_text, most=KEY_MAX)),
    "lane_capacity": ("lane_capacity", _check_lane_capacity),
    "meta": ("meta_json", _encode_meta),
    "connection": ("connection", lambda value, name: value),
}
"""The field of EnqueueOptions for each option, and its check."""
