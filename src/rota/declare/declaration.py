"""A declared job type inside the package: handler, rules and codec. Knows no database."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from rota.declare.asks import AsksMaker
from rota.declare.chunk import Chunk, ItemCodec
from rota.declare.key import KeyMaker
from rota.declare.options import EnqueueOptions, JobTypeOptions
from rota.declare.parameter import refuse_hidden
from rota.declare.payload import Codec
from rota.declare.place import CodePlace
from rota.errors import DeclarationError, PayloadError, UsageError
from rota.model.retry import PLAN_MAX
from rota.model.settle import RetryRules
from rota.model.units import format_interval

if TYPE_CHECKING:
    from rota.declare.job_type import SenderOfJobs
    from rota.model.job import Job

T = TypeVar("T")


class Declaration:
    def __init__(
        self,
        jobs: SenderOfJobs,
        name: str,
        func: Callable[..., Any],
        takes_context: bool,
        options: JobTypeOptions,
        chunk: Chunk | None = None,
    ) -> None:
        self.jobs = jobs
        """The `Jobs` that declares the type."""
        self.name = name
        self.func = func
        self.takes_context = takes_context
        self.options = options
        self.chunk = chunk
        """How many jobs a call takes; None: a single job, whose arguments are the call's."""
        # Also under a plain decorator: its coroutine is awaited.
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(func))
        yields = inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func)
        if yields or not inspect.isroutine(func):
            raise DeclarationError(
                f"job type {name!r}: the handler must be a plain or an async function, not "
                f"{'a generator, which yields' if yields else repr(func)}"
            )
        self.place = _find_place(func)
        self.item_codec: ItemCodec | None = None
        """None: a call takes one job."""
        if chunk is not None:
            self.item_codec = ItemCodec.of(func, job_type=name, takes_context=takes_context)
        self.codec = self.item_codec or Codec.of(func, job_type=name, takes_context=takes_context)
        refuse_hidden(self.codec.hints, name)
        self.key_maker = self._make_maker("key", options.key)
        self.group_maker = self._make_maker("group_key", options.group_key)
        breaker = options.breaker
        self.breaker = None if breaker is None else breaker.make_rules(name)
        """None: the type has no breaker."""
        self.breaker_key = self._make_maker("breaker key", None if breaker is None else breaker.key)
        """None: its breaker has no keys."""
        self.rules = RetryRules(
            options.max_attempts,
            options.retry,
            options.retry_on,
            options.fatal_on,
            options.on_lost == "dead",
            options.on_expired == "drop",
        )
        limit = options.rate_limit
        cost = None if limit is None or not callable(limit.cost) else limit.cost
        self.asks = AsksMaker(
            limit,
            {
                "limit": self._make_maker("rate_limit key", None if limit is None else limit.key),
                "cost": self._make_maker("rate_limit cost", cost),
                "breaker": self.breaker_key,
            },
        )

    def __repr__(self) -> str:
        return f"<job type {self.name!r}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the former names."""
        return self.name, *self.options.aliases

    def _make_maker(self, option: str, func: Callable[..., Any] | str | None) -> KeyMaker | None:
        if func is None:
            return None
        return KeyMaker(
            func,
            option=option,
            job_type=self.name,
            names=self.codec.parameters,
            defaults=self.codec.defaults,
            secret=self.codec.secret_parameters,
            plain=frozenset() if self.chunk or self.options.upgrade else self.codec.plain,
        )

    def is_again(self, before: Declaration) -> bool:
        """Whether this is `before`, declared again, as a function within another function is."""
        ours, theirs = self.func.__qualname__, before.func.__qualname__
        is_same = self.name == before.name and ours == theirs and "<locals>" not in ours
        return is_same and self.place.is_again(before.place)

    def check_timeout(self, options: EnqueueOptions) -> None:
        """Raise UsageError if a job has a timeout of its own, and its call takes many."""
        if self.chunk is not None and options.timeout is not None:
            raise UsageError(
                f"job type {self.name!r}: a job has no timeout of its own, because one call takes "
                "many; give timeout to the job type"
            )

    def arguments(self, job: Job) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the arguments of a job, and the ignored unknown fields. Raises PayloadError."""
        return self._read(job, self.codec.decode)

    def call_arguments(self, job: Job) -> tuple[dict[str, Any], frozenset[str]]:
        """As `arguments`, for a call of the handler with this job alone."""
        if self.item_codec is None:
            return self.arguments(job)
        item, unknown = self.read_item(job)
        return {self.item_codec.parameter: [item]}, unknown

    def read_many(self, jobs: list[Job]) -> list[dict[str, Any]] | None:
        """As `call_arguments`, for many jobs. None: decode each job alone."""
        current = self.options.version
        if self.item_codec is not None or [1 for job in jobs if job.payload_version != current]:
            return None
        return self.codec.decode_many([job.payload_json for job in jobs])

    def read_item(self, job: Job) -> tuple[Any, frozenset[str]]:
        """Return a payload as an item of the list, and unknown fields. Raises as `arguments`."""
        assert self.item_codec is not None
        return self._read(job, self.item_codec.read_item)

    def read_items(self, jobs: list[Job]) -> tuple[list[Any], frozenset[str]] | None:
        """As `read_item`, for many jobs. None: decode each job alone."""
        assert self.item_codec is not None
        current = self.options.version
        if [1 for job in jobs if job.payload_version != current]:
            return None
        return self.item_codec.read_items([job.payload_json for job in jobs])

    def upgrade(self, job: Job) -> Job:
        """Return a job with the payload that the handler takes. Raises as `arguments`."""
        if not self.options.upgrade:
            return job
        text = self._read(job, self._keep)
        return replace(job, payload_json=text, payload_version=self.options.version or 1)

    def _keep(self, text: str) -> str:
        self.codec.decode(text)
        return text

    def _read(self, job: Job, decode: Callable[[str], T]) -> T:
        """Decode a stored payload, of whatever version."""
        stored, current = job.payload_version, self.options.version or 1
        if stored == current:
            return decode(job.payload_json)
        if stored is None:
            if not self.options.upgrade:
                return decode(job.payload_json)
            try:
                return decode(job.payload_json)
            except PayloadError:
                stored = 1
        if stored > current:
            why = f"stored as version {stored}, this release knows up to version {current}"
            raise PayloadError(self.name, None, why)
        payload = job.payload
        for version in range(stored, current):
            payload = self.options.upgrade[version](payload)
        return decode(self.codec.write(payload))


def make_row(job_type: Declaration, lease_s: float) -> dict[str, Any]:
    options = job_type.options
    return {
        **options.columns(),
        "name": job_type.name,
        "aliases": options.aliases,
        "lease": format_interval(options.lease_s or lease_s),
        "key_arguments": None if job_type.key_maker is None else job_type.key_maker.arguments,
        "group_arguments": (
            None if job_type.group_maker is None else job_type.group_maker.arguments
        ),
        **job_type.asks.make_row(),
        "secret_fields": sorted(job_type.codec.secret) or None,
        "personal_fields": sorted(job_type.codec.personal) or None,
        "breaker": None if job_type.breaker is None else job_type.breaker.name,
        "breaker_has_keys": None if job_type.breaker is None else job_type.breaker_key is not None,
        "retry_after": [format_interval(wait_s) for wait_s in options.retry.plan_s(PLAN_MAX)],
    }


def _find_place(func: Callable[..., Any]) -> CodePlace:
    inner = inspect.unwrap(func)
    code = getattr(inner, "__code__", None)
    if code is None:
        return CodePlace(repr(func), 0, str(func.__module__), None)
    return CodePlace.of(code, code.co_firstlineno, inner.__globals__)
