"""A context for a plain unit test of a handler: without a database and a running job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from rota.declare.context import Context, _current
from rota.declare.job_type import JobType, NewJob, SenderOfJobs
from rota.errors import UsageError
from rota.model.awaited import JobResult, Results
from rota.model.batch import META_KEY, BatchEnd
from rota.model.effect import EffectAnswer, EffectCall
from rota.model.job import Job, Progress


class RecordingContext(Context):
    """A context that records what a handler tells it.

    Each effect and each step is new: it runs, and `effect.done` is False. `transaction` and
    `complete` raise UsageError. Within `with`, `rota.context()` returns this context.
    """

    __slots__ = ("_token", "done_effects", "reports")

    def __init__(
        self,
        job: Job,
        state: Any = None,
        results: Results | None = None,
        jobs: SenderOfJobs | None = None,
    ) -> None:
        keeper = _NewEffects()
        super().__init__(job, "test", state, _record_progress, None, keeper, results, jobs)
        self.reports: list[Progress] = []
        """The progress reports, in order."""
        self.done_effects: list[str] = []
        """The keys of done effects and the names of done steps, in order."""

    def cancel(self, why: str = "the test asked it to stop") -> None:
        """Ask the handler to stop, as a cancel, a timeout or a lost lease would."""
        self._request_stop(why)

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._token)


def make_context(
    job: JobType[..., ..., Any] | NewJob | None = None,
    /,
    *,
    state: Any = None,
    attempt: int = 1,
    id: int = 1,
    meta: dict[str, Any] | None = None,
    scheduled_for: datetime | None = None,
    ended_batch: BatchEnd | None = None,
    results: Iterable[JobResult] = (),
) -> RecordingContext:
    """Make a context for a plain unit test: `resize(make_context(), photo=7)`.

    Args:
        job: the type or the job of `ctx.job`; `ctx.app` is its App. Defaults to a type named
            "test".
        state: what `ctx.state` is. Defaults to None.
        attempt: what `ctx.job.attempts` is. Defaults to 1.
        id: the id of the job. Defaults to 1.
        meta: what `ctx.job.meta` is. Defaults to None.
        scheduled_for: the scheduled time, an aware datetime. Defaults to None.
        ended_batch: the outcome of the batch that the job follows. Defaults to None.
        results: what `ctx.results` has, of jobs that the job waited for. Defaults to none.

    Raises:
        UsageError: `job` is neither a job type nor a job.
    """
    given: object = job
    if not isinstance(given, JobType | NewJob | None):
        raise UsageError(
            f"context takes a job type or a job such as welcome.new(42), not {given!r}"
        )
    job_type = job.job_type if isinstance(job, NewJob) else job
    declared = None if job_type is None else job_type._declaration
    if ended_batch is not None:
        meta = {**(meta or {}), META_KEY: msgspec.to_builtins(ended_batch)}
    now = datetime.now(UTC)
    made = Job(
        id=id,
        origin_id=id,
        queue="default" if declared is None else declared.options.queue,
        job_type="test" if declared is None else declared.name,
        payload_json=job.payload_json if isinstance(job, NewJob) else "{}",
        payload_version=None if declared is None else declared.options.version,
        priority=0 if declared is None else declared.options.priority,
        run_at=now,
        expires_at=None,
        attempts=attempt,
        max_attempts=None if declared is None else declared.options.max_attempts,
        claims=attempt,
        idempotency_key=job.key if isinstance(job, NewJob) else None,
        group_key=job.group_key if isinstance(job, NewJob) else None,
        meta_json=None if meta is None else msgspec.json.encode(meta).decode(),
        created_at=now,
        scheduled_for=scheduled_for,
        locked_by="test",
        started_at=now,
    )
    jobs = None if job_type is None else job_type._declaration.jobs
    return RecordingContext(made, state, {result.id: result for result in results}, jobs)


def _record_progress(context: Context) -> None:
    assert isinstance(context, RecordingContext)
    assert context._progress is not None
    context.reports.append(Progress(*context._progress, datetime.now(UTC)))


class _NewEffects:
    """Answers that each effect is new, and keeps nothing."""

    def call(self, context: Context, call: EffectCall) -> EffectAnswer:
        if call.verb == "intend":
            return EffectAnswer("begun")
        if call.verb == "finish" and isinstance(context, RecordingContext):
            context.done_effects.append(call.key)
        return EffectAnswer("ended")

    async def acall(self, context: Context, call: EffectCall) -> EffectAnswer:
        return self.call(context, call)
