"""The options of a job type, and the options of one job: each documented once, and declared once.

A `TypedDict` is what a caller writes; the frozen class beside it is what the checks make of it.
Python, the SQL function `worker_declare` and the reference read JobTypeOptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, TypedDict, get_args

import msgspec
from msgspec import UNSET, UnsetType

from rota.declare.breaker import Breaker, check_breaker
from rota.declare.connection import AnyConnection, read_connection
from rota.declare.groups import (
    AFTER_DEATH,
    CAPACITY,
    GROUP_KEY,
    ON_DUPLICATE,
    SCOPE,
    TTL,
    UNIQUE_KEY,
    WHILE_RETRYING,
    KeyFunction,
    OnDuplicate,
    Ordered,
    Process,
    Unique,
    read_group,
    read_process,
)
from rota.declare.option import (
    OptionKind,
    choice,
    duration,
    only_python,
    option,
    options_of,
    or_none,
    text,
    whole,
    yes_or_no,
)
from rota.declare.payload import Codec
from rota.declare.rate_limit import RateLimit, check_rate_limit
from rota.errors import PayloadError, UsageError
from rota.model import asks, awaited, batch
from rota.model.bounds import (
    ATTEMPTS_MAX,
    EXPIRES_S_MIN,
    KEY_MAX,
    NAME_MAX,
    PRIORITY_MAX,
    QUEUE_MAX,
    check_aware,
    check_queue,
    check_text,
)
from rota.model.retry import DEFAULT_MAX_ATTEMPTS, DEFAULT_RETRY, Errors, RetryPolicy
from rota.model.units import Duration, format_interval

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
History = Literal["all", "failures"]
OnLost = Literal["retry", "dead"]
OnExpired = Literal["dead", "drop"]

LEASE_S_MIN = 1.0
TIMEOUT_S_MIN = 0.001
VERSION_MAX = 32_767
MAX_RUNNING_MAX = 100_000


# Of a job type


class JobOptions(TypedDict, total=False):
    """The options of a job type, as `job(…)` takes them. All are optional."""

    queue: str
    """Where its jobs wait: 1 … 100 printable characters, no comma. Defaults to "default"."""
    priority: int
    """−100 … 100; higher runs first within a queue. Defaults to 0."""
    max_attempts: int
    """Attempts after which a job is dead, 1 … 10,000. Defaults to 10."""
    retry: RetryPolicy
    """How long to wait after a failed attempt. Defaults to `rota.Exponential("10s", cap="1h")`."""
    timeout: Duration
    """The longest that an attempt may run, at least 1 ms; checked ten times a second. Defaults to
    5 minutes."""
    lease: Duration | None
    """How long a claim holds a job, at least 1 s; renewed at each third of it. Take 5 to 20 times a
    typical run. Defaults to the App's."""
    expires: Duration | None
    """How long after `run_at` a job may still start, at least 1 ms; then `on_expired` counts.
    Defaults to no limit."""
    on_expired: OnExpired
    """What happens to a job that was not started in time: `dead`, with the error `Expired`, or
    `drop`: cancelled, and its idempotency key is free. Defaults to "dead"."""
    retry_on: Errors
    """Exception classes, and status codes of HTTP or SMTP, worth another attempt. Defaults to
    none."""
    fatal_on: Errors
    """Exception classes and status codes after which the job is dead at once. Defaults to none."""
    version: int | None
    """The payload's version that `enqueue` stores, 1 … 32,767. Defaults to none, which means 1."""
    upgrade: Mapping[int, Upgrade] | None
    """For each version from 1 to `version` − 1 a function that turns a stored payload into the next
    version. Defaults to none."""
    aliases: tuple[str, ...]
    """Former names: their jobs run here, and their idempotency keys move along. Defaults to
    none."""
    unique: KeyFunction | Unique | None
    """What makes each job's key from the handler's arguments: a text with their names, as in
    `"welcome:{user_id}"`, or a function of them. An enqueue with a taken key inserts nothing. A
    `rota.Unique(…)` says more, such as for how long. Defaults to none."""
    ordered: KeyFunction | Ordered | None
    """What makes each job's group key from the handler's arguments: a text with their names, as in
    `"invoice:{invoice}"`, or a function of them. Jobs with one group key, of whatever type and
    queue, run in the order of becoming due. A `rota.Ordered(…)` says more. Defaults to none."""
    max_running: int | None
    """Most jobs of the type that run at once, over all workers, 1 … 100,000. Defaults to no
    limit."""
    transactional: bool
    """Whether an enqueue needs an open transaction of the caller's. Defaults to False."""
    history: History
    """Which rows `job_history` gets: `all`, or only `failures`, which are failed attempts,
    cancelled and dead jobs. Defaults to "all"."""
    on_lost: OnLost
    """What happens to a begun job whose worker was lost: `retry` by its policy, or `dead`. Defaults
    to "retry"."""
    breaker: Breaker | None
    """A circuit breaker: after some failures of an endpoint the jobs that call it wait, and then
    one tries. Defaults to none."""
    rate_limit: RateLimit | None
    """A limit of how often jobs start, shared by all workers and all types that name it. Defaults
    to none."""
    process: bool | Process
    """Whether the handler runs in a process of its own, for work that needs the CPU and for code
    that must be killed to stop; or a `rota.Process(…)`. Defaults to False: an async function runs
    on the worker's loop, a plain function in a thread."""


def _check_retry(value: Any, name: str) -> RetryPolicy:
    if not isinstance(value, RetryPolicy):
        raise UsageError(f"{name} must be a retry policy such as rota.Exponential(), not {value!r}")
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


def _check_upgrade(value: Any, name: str) -> Mapping[int, Upgrade]:
    given = {} if value is None else value
    if not isinstance(given, Mapping) or not all(map(callable, given.values())):
        raise UsageError(f"{name} must be a mapping from version to function, not {value!r}")
    return dict(given)


def _check_aliases(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, tuple | list):
        raise UsageError(f"{name} must be a tuple of names, not {value!r}")
    return tuple(check_text(alias, name, NAME_MAX) for alias in value)


_ERRORS = OptionKind("exception classes, status codes", "a tuple; codes 100 … 599", check_errors)
_QUEUE = text(QUEUE_MAX)
_QUEUE = msgspec.structs.replace(_QUEUE, range=f"{_QUEUE.range}, no comma", check=check_queue)
_PRIORITY = whole(-PRIORITY_MAX, PRIORITY_MAX)
_MAX_ATTEMPTS, _TIMEOUT = whole(1, ATTEMPTS_MAX, "attempts"), duration(TIMEOUT_S_MIN)
_EXPIRES = duration(EXPIRES_S_MIN)


@dataclass(frozen=True, slots=True)
class JobTypeOptions:
    """The options of a job type, checked. Durations are seconds. Options of a kind that SQL knows
    are columns of `job_type`."""

    queue: str = option("default", _QUEUE)
    priority: int = option(0, _PRIORITY)
    max_attempts: int = option(DEFAULT_MAX_ATTEMPTS, _MAX_ATTEMPTS)
    retry: RetryPolicy = option(
        DEFAULT_RETRY,
        OptionKind("retry policy", "[retry policies](retry-policies.md)", _check_retry),
    )
    timeout_s: float = option("5m", _TIMEOUT, "timeout")
    lease_s: float | None = option(
        None, only_python(or_none(duration(LEASE_S_MIN), "the App's")), "lease"
    )
    """None: the App's."""
    expires_s: float | None = option(None, or_none(_EXPIRES, "no limit"), "expires")
    on_expired: str = option("dead", choice(*get_args(OnExpired)))
    retry_on: Errors = option((), _ERRORS)
    fatal_on: Errors = option((), _ERRORS)
    version: int | None = option(None, or_none(whole(1, VERSION_MAX), "none"))
    upgrade: Mapping[int, Upgrade] = option(
        None,
        OptionKind(
            "mapping", "a function for each version from 1 to `version` − 1", _check_upgrade
        ),
    )
    aliases: tuple[str, ...] = option((), OptionKind("names", "each as `name`", _check_aliases))
    key: KeyFunction | None = option(None, UNIQUE_KEY)
    on_duplicate: str = option("keep", ON_DUPLICATE)
    key_scope: str = option("ttl", SCOPE)
    key_ttl_s: float = option("90d", TTL, "key_ttl")
    group_key: KeyFunction | None = option(None, GROUP_KEY)
    group_capacity: int = option(1, CAPACITY)
    on_retry: str = option("hold", WHILE_RETRYING)
    on_dead: str = option("continue", AFTER_DEATH)
    max_running: int | None = option(None, or_none(whole(1, MAX_RUNNING_MAX, "jobs"), "no limit"))
    """Over all workers; None: no limit."""
    transactional: bool = option(False, yes_or_no())
    history: str = option("all", choice(*get_args(History)))
    on_lost: str = option("retry", choice(*get_args(OnLost)))
    breaker: Breaker | None = option(None, OptionKind("`rota.Breaker`", "", check_breaker))
    rate_limit: RateLimit | None = option(
        None, OptionKind("`rota.RateLimit`", "", check_rate_limit)
    )
    process: Process | None = None
    """None: an async function runs on the worker's loop, a plain function in a thread."""

    @classmethod
    def check(cls, options: JobOptions) -> JobTypeOptions:
        """Check the options of a job type. Raises UsageError."""
        if unknown := sorted(options.keys() - JOB_DEFAULTS.keys()):
            raise UsageError(
                f"there is no option {unknown[0]!r}{_mean(unknown[0], _OF_JOBS)}; there are "
                f"{', '.join(JOB_DEFAULTS)}"
            )
        given: dict[str, Any] = {**JOB_DEFAULTS, **options}
        unique = read_group(given["unique"], Unique, "unique")
        ordered = read_group(given["ordered"], Ordered, "ordered")
        given |= {name: getattr(unique, field) for name, field in _OF_UNIQUE.items()}
        given |= {name: getattr(ordered, field) for name, field in _OF_ORDERED.items()}
        checked: dict[str, Any] = {
            field: declared.kind.check(given[declared.name], declared.name)
            for field, declared in JOB_OPTIONS.items()
        }
        _check_versions(checked["version"], checked["upgrade"])
        return cls(**checked, process=read_process(given["process"]))

    def columns(self) -> dict[str, Any]:
        """Return the options that are columns of `job_type`."""
        return {
            declared.name: format_interval(getattr(self, field))
            if declared.kind.sql_type == "interval"
            else getattr(self, field)
            for field, declared in JOB_OPTIONS.items()
            if declared.kind.sql_type
        }


JOB_OPTIONS = options_of(JobTypeOptions)
_OF_UNIQUE = {
    "key": "key", "key_scope": "scope", "key_ttl": "ttl", "on_duplicate": "on_duplicate"
}  # fmt: skip
_OF_ORDERED = {
    "group_key": "key", "group_capacity": "capacity",
    "on_retry": "while_retrying", "on_dead": "after_death",
}  # fmt: skip
"""The fields of Unique and of Ordered, by the options that they are."""
_DEFAULTS = {
    **{option.name: option.default for option in JOB_OPTIONS.values()},
    "unique": None,
    "ordered": None,
    "process": False,
}
JOB_DEFAULTS = {name: _DEFAULTS[name] for name in JobOptions.__annotations__}
"""The default of each option of a job type, as a caller would write it."""
_OF_JOBS = (*JOB_DEFAULTS, "takes_context", "chunk")


_CALLED_HERE = {
    "countdown": "delay", "eta": "run_at", "schedule_at": "run_at", "retries": "max_attempts",
    "max_retries": "max_attempts", "retry_backoff": "retry", "retry_jitter": "retry",
    "default_retry_delay": "retry", "time_limit": "timeout",
    "ttl": "expires", "idempotency_key": "key", "queueing_lock": "key",
    "concurrency": "max_running", "lock": "ordered", "executor": "process",
    "key": "unique", "bind": "takes_context",
}  # fmt: skip
"""The options of other libraries, by their names there."""
_EXPLAINED = {
    "max_retries": "It counts the first run too",
    "retries": "It counts the first run too",
    "retry_jitter": "A policy such as rota.Exponential has jitter=0.25",
    "default_retry_delay": 'As in retry=rota.Fixed("3m")',
    "autoretry_for": "errors are retried already; fatal_on and retry_on say which, if Rota errs",
    "acks_late": 'the job of a crashed worker runs again already, but with on_lost="dead"',
    "ignore_result": 'history="failures" keeps no result',
    "soft_time_limit": "the handler reads ctx.time_left_s: how much of its timeout is left",
    "link": "app.enqueue(first.new(…), then=second.new(…))",
    "link_error": 'app.enqueue(first.new(…), then={"failed": second.new(…)})',
    "base": "there are no task classes; App(middleware=…) is around each attempt",
}
"""More about such a name, or the answer where no option fits."""


def _mean(name: str, options: Iterable[str]) -> str:
    """Return the option that a wrong name means: another library's name, or a similar name."""
    known = list(options)
    called, more = _CALLED_HERE.get(name, name), _EXPLAINED.get(name, "")
    meant = next((word for word in (called, _CALLED_HERE.get(called)) if word in known), None)
    if meant is None and (more or called in _USING):
        return f" ({more or f'it is of one job: .using({called}=…)'})"
    meant = meant or next(iter(get_close_matches(name, known, 1)), None)
    return "" if meant is None else f" (did you mean {meant}?{' ' * bool(more)}{more})"


def advise_using(name: str) -> str:
    """Return how to give this option of a job; "": there is no such option."""
    option = _CALLED_HERE.get(name, name)
    return f"; an option of the job: .using({option}=…).enqueue(…)" if option in _USING else ""


def _check_versions(version: int | None, upgrade: Mapping[int, Upgrade]) -> None:
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


# Of one job


class UsingOptions(TypedDict, total=False):
    """The options of one job, as `using(…)` takes them. All are optional; None changes nothing."""

    run_at: datetime | None
    """The earliest time to run: an aware datetime; a past one means now. Defaults to now, by the
    database's clock."""
    delay: Duration | None
    """`run_at` as a duration from now. Not together with `run_at`."""
    priority: int | None
    """−100 … 100; higher runs first within a queue. Defaults to the type's."""
    queue: str | None
    """Where the job waits: 1 … 100 printable characters. Defaults to the type's."""
    max_attempts: int | None
    """Attempts after which the job is dead, 1 … 10,000. Defaults to the type's when an
    attempt ends."""
    timeout: Duration | None
    """The longest that an attempt may run, at least 1 ms. Defaults to the type's."""
    expires: Duration | None
    """How long after `run_at` the job may still start, at least 1 ms. Defaults to the type's."""
    key: str | None
    """1 … 255 printable characters. A second job of the type with the same key is not inserted.
    Defaults to what the type's `unique` makes, otherwise to none."""
    on_duplicate: OnDuplicate | None
    """What to do if another job has the key. Defaults to the type's."""
    group_key: str | None
    """1 … 255 printable characters. Jobs with one group key run in the order of becoming due.
    Defaults to what the type's `ordered` makes, otherwise to none."""
    group_capacity: int | None
    """How many jobs of its group may run at once when the job begins, 1 … 1,000. Defaults to the
    type's."""
    meta: Mapping[str, Any] | None
    """A mapping kept with the job, in JSON, at most as large as a payload; no handler argument."""
    connection: AnyConnection
    """A connection or session of psycopg, asyncpg, SQLAlchemy or Django whose transaction the
    INSERT joins; it is never committed, rolled back or closed. None is refused. Defaults to one of
    the App's."""


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
    group_capacity: int | None = None
    meta_json: str | None = None
    # From here on the OWN fields, which jobs often have of their own.
    idempotency_key: str | None = None
    group_key: str | None = None
    connection: Any = None

    def update(
        self, options: UsingOptions, connection: AnyConnection | UnsetType = UNSET
    ) -> EnqueueOptions:
        """Return these options with others on top; None changes nothing. Raises UsageError."""
        changes: dict[str, Any] = {}
        if "connection" in options:
            if connection is not UNSET:
                raise UsageError("using() takes one connection, by position or by name")
            connection = options["connection"]
        if connection is not UNSET:
            changes["connection"] = read_connection(connection)
        for name, value in options.items():
            if name not in _USING:
                raise UsageError(
                    f"a job has no option {name!r}{_mean(name, _USING)}; its options "
                    f"are {', '.join(_USING)}"
                )
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
        """Return these options with more meta; their own meta counts first."""
        if not meta:
            return self
        own = {} if self.meta_json is None else msgspec.json.decode(self.meta_json)
        return self.update({"meta": {**meta, **own}})


OWN = 3
"""The number of last fields of EnqueueOptions that jobs do not have in common."""

_OF_ONE_JOB = (awaited.META_KEY, batch.META_KEY, asks.META_KEY)
"""What Rota writes into the meta of one job. A handler that gives its own meta to jobs that it
enqueues does not pass this on."""


def _encode_meta(value: Any, name: str) -> str:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a mapping, not {value!r}")
    try:
        meta = {key: item for key, item in value.items() if key not in _OF_ONE_JOB}
        return META.encode((), {"meta": meta})[len('{"meta":') : -1]
    except PayloadError as error:
        raise UsageError(f"{error.argument or name}: {error.reason}") from None


def encode_asks(meta: Mapping[str, Any] | None) -> str | None:
    """Return what a job asks by its meta, as JSON text. Raises UsageError."""
    given = (meta or {}).get(asks.META_KEY)
    return None if given is None else _encode_meta(given, asks.META_KEY)


def _takes_meta(meta: dict[str, Any]) -> None: ...


META = Codec.of(_takes_meta, job_type="meta", takes_context=False)


def _check_timeout(value: Any, name: str) -> timedelta:
    return timedelta(seconds=_TIMEOUT.check(value, name))


_USING: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "run_at": ("run_at", check_aware),
    "delay": ("delay_s", duration(0.0).check),
    "priority": ("priority", _PRIORITY.check),
    "queue": ("queue", _QUEUE.check),
    "max_attempts": ("max_attempts", _MAX_ATTEMPTS.check),
    "timeout": ("timeout", _check_timeout),
    "expires": ("expires_s", _EXPIRES.check),
    "key": ("idempotency_key", partial(check_text, most=KEY_MAX)),
    "on_duplicate": ("on_duplicate", ON_DUPLICATE.check),
    "group_key": ("group_key", partial(check_text, most=KEY_MAX)),
    "group_capacity": ("group_capacity", CAPACITY.check),
    "meta": ("meta_json", _encode_meta),
    "connection": ("connection", lambda value, name: value),
}
"""The field of EnqueueOptions for each option, and its check."""
