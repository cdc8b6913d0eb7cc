"""The jobs that a job waits for, and their results. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import msgspec

from rota.errors import UsageError
from rota.model.batch import Batch
from rota.model.bounds import check_choice
from rota.model.job import Enqueued, Job
from rota.model.record import Record

AWAITED_MAX = 1_000
"""Most jobs that one job waits for, in all its waits together: before each attempt the worker reads
all their results, up to 64 KiB each. A batch has no such limit."""
META_KEY = "rota.waits"
"""Where the meta of a job says which jobs it has waited for."""

OnFailure = Literal["continue", "wait"]
"""What a dead job means for a job that waits for it: the dead job has ended, or it is waited for
until a person has retried or archived it."""


class Awaits(msgspec.Struct, frozen=True):
    jobs: tuple[int, ...] = ()
    """The jobs of its last wait."""
    before: tuple[int, ...] = ()
    """The jobs of its earlier waits."""
    on_failure: OnFailure = "continue"

    @property
    def all(self) -> tuple[int, ...]:
        """All jobs, each once, in the order in which they were named."""
        return tuple(dict.fromkeys(self.before + self.jobs))


NO_AWAITS = Awaits()


def has_awaited(job: Job) -> bool:
    """Whether a job may have waited for others."""
    return job.meta_json is not None and META_KEY in job.meta_json


def read_awaits(job: Job) -> Awaits:
    """Return the jobs that a job has waited for; none, if Rota did not write its meta."""
    if not has_awaited(job):
        return NO_AWAITS
    assert job.meta_json is not None
    try:
        return _meta.decode(job.meta_json).awaits
    except msgspec.ValidationError:
        return NO_AWAITS


class _Meta(msgspec.Struct, frozen=True):
    awaits: Awaits = msgspec.field(default=NO_AWAITS, name=META_KEY)


_meta = msgspec.json.Decoder(_Meta)


class JobResult(Record, frozen=True):
    """The result of a job that another job waited for, or of a member of a batch."""

    id: int
    """The job as it was named, or inserted."""
    job: int
    """The job that ended: another job, if a person requeued the first."""
    outcome: Literal["succeeded", "dead", "archived", "cancelled", "gone"] | None
    """`archived`: it was dead, and a person or retention has archived it. `gone`: nothing of it is
    kept: its type keeps failures only, retention has deleted it, or it was never committed. None:
    it has not ended; so only in a batch."""
    result_json: str | None = None
    """What its handler returned, as JSON text; None: nothing, or it has not succeeded."""
    error_type: str | None = None
    """Class name of the last error of a dead job, archived or not; None: none is kept."""
    error: str | None = None
    """The last error of a dead job, or why a job was cancelled; None: none is kept."""

    @property
    def succeeded(self) -> bool:
        """Whether the job has succeeded."""
        return self.outcome == "succeeded"

    @property
    def result(self) -> Any:
        """What its handler returned, in its JSON form; None: nothing, or it has not succeeded."""
        return None if self.result_json is None else msgspec.json.decode(self.result_json)


Results = Mapping[int, JobResult]
"""The results of jobs, by their ids as they were named."""
NO_RESULTS: Results = MappingProxyType({})


def read_ids(jobs: Any) -> tuple[int, ...]:
    """Return the ids of jobs to wait for, each once. Raises UsageError for a wrong argument."""
    is_one = isinstance(jobs, int | Record) or not isinstance(jobs, Iterable)
    ids = tuple(dict.fromkeys(_read_id(job) for job in ([jobs] if is_one else jobs)))
    if not ids:
        raise UsageError("WaitFor: there is no job to wait for; go on without it")
    if len(ids) > AWAITED_MAX:
        raise UsageError(_explain_too_many(len(ids)))
    return ids


def _read_id(job: Any) -> int:
    if isinstance(job, Job | Enqueued):
        return job.id
    if isinstance(job, Batch) or hasattr(job, "jobs"):
        raise UsageError(
            "WaitFor takes jobs, not a batch: let the job that goes on follow the batch, as in "
            "app.batch(jobs, then=…), or wait for batch.jobs"
        )
    if not isinstance(job, int) or isinstance(job, bool) or not 1 <= job < 2**63:
        raise UsageError(f"WaitFor takes ids, or what enqueue returned, not {job!r}")
    return job


def find_fault(
    job: Job, wanted: Collection[int], on_failure: OnFailure, results: Collection[JobResult]
) -> str | None:
    """Say why a job may not wait for these: a wait for known results would loop. None: it may."""
    if job.id in wanted:
        return f"job {job.id} waits for itself"
    total = len({*read_awaits(job).all, *wanted})
    if total > AWAITED_MAX:
        return _explain_too_many(total)
    told = {known.id for known in results if on_failure == "continue" or known.outcome != "dead"}
    if told.issuperset(wanted):
        return (
            "it waits for jobs that have all ended, and of which it was told: read ctx.results "
            "first, and wait only for those that are not there"
        )
    return None


def _explain_too_many(count: int) -> str:
    return (
        f"WaitFor: a job waits for at most {AWAITED_MAX:,} jobs in all, not for {count:,}; "
        "app.batch(jobs, then=…) has no such limit"
    )


def check_on_failure(value: Any) -> OnFailure:
    """Return the value. Raises UsageError for any other."""
    check_choice(value, "WaitFor: on_failure", get_args(OnFailure))
    return value  # type: ignore[no-any-return]
