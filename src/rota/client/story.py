"""What happened to a job, told step by step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import JobNotFound
from rota.model.failure import one_line
from rota.model.job import Action, Job, Status
from rota.model.units import words
from rota.store import ops
from rota.store.ops import Action as Deed
from rota.store.ops import Attempt, Filter

if TYPE_CHECKING:
    from rota.store.driver import Operation

OVERLAP = "Overlap"
"""The error type of a tick that was skipped."""
EXPIRED = "expired"
"""The rule of an attempt that did not come about: its worker is the one that found the job past its expiry."""
ACTIONS_MAX = 200
"""Of a job's actions the latest so many are told."""


class Step(msgspec.Struct, frozen=True):
    """One thing that happened."""

    at: datetime
    job: int
    what: str
    """In a word: enqueued, failed, dead, succeeded …, or the verb of what somebody did."""
    text: str
    """The rest, on one line."""
    attempt: Attempt | None = None
    """Of a failed attempt: all that is known of it."""
    action: Deed | None = None
    """Of what somebody did: who, and why."""


class Story(msgspec.Struct, frozen=True):
    """A job, the jobs that are the same work (what it was requeued from and as), and what happened to them, in order."""

    job: Job
    chain: list[Job]
    attempts: list[Attempt]
    """The job's own, that did not succeed."""
    steps: list[Step]


def tell(id: int) -> Operation[Story]:
    """Read the story of a job. Raises JobNotFound."""
    ids = yield from ops.chain(id)
    chain = sorted((yield from ops.find(Filter(ids=ids))), key=lambda job: job.id)
    if id not in [job.id for job in chain]:
        raise JobNotFound(id)
    attempts: dict[int, list[Attempt]] = {}
    for job in chain:
        attempts[job.id] = yield from ops.attempts(job.id)
    until = (
        None
        if any(job.finished_at is None for job in chain)
        else max(job.finished_at for job in chain if job.finished_at is not None)
    )
    queues = sorted({job.queue for job in chain})
    actions = yield from ops.actions(
        ids, [job.created_at for job in chain], queues, until, ACTIONS_MAX
    )
    [job] = [job for job in chain if job.id == id]
    return Story(
        job=job, chain=chain, attempts=attempts[id], steps=steps(chain, attempts, actions, id)
    )


def steps(
    chain: Sequence[Job], attempts: dict[int, list[Attempt]], actions: Sequence[Deed], id: int
) -> list[Step]:
    """Put together what happened to jobs, in order. What was done to a queue, or to everything, is told with job `id`."""
    told = [step for job in chain for step in _of_job(job, attempts[job.id], actions)]
    told += [_acted(action, {job.id for job in chain}, id) for action in actions]
    return sorted(
        told, key=lambda step: (step.at, _RANK.get(step.what, 1))
    )  # stable: what happened in the same instant keeps its order


_RANK = {
    Action.BURY: -2, Status.DEAD: -1, Action.REQUEUE: -1, Action.RUN_AGAIN: -1, Action.RETRY_NOW: 0, "enqueued": 0,
    Status.SUCCEEDED: 2, Status.CANCELLED: 2,
}  # fmt: skip
"""In one transaction what somebody did comes before what became of it, and the end last."""


def _of_job(job: Job, attempts: Sequence[Attempt], actions: Sequence[Deed]) -> Iterator[Step]:
    yield Step(job.created_at, job.id, "enqueued", _enqueued(job))
    for attempt in attempts:
        yield Step(
            attempt.finished_at,
            job.id,
            _OUTCOME.get(attempt.outcome, attempt.outcome),
            _attempted(attempt),
            attempt=attempt,
        )
    if job.cancel_requested_at is not None and not any(
        action.job == job.id and action.verb == "cancel" for action in actions
    ):
        yield Step(job.cancel_requested_at, job.id, "cancel", _with("requested", job.cancel_reason))
    if not any(
        action.job == job.id and action.verb in (Action.REQUEUE, Action.IGNORE)
        for action in actions
    ):  # that is how it was put away
        yield from _end(job)


_OUTCOME = {"queued": "given back"}
"""Of an attempt that counted for nothing, after which the job was queued again."""


def _enqueued(job: Job) -> str:
    parts = [f"{job.job_type} in queue {job.queue}, priority {job.priority}"]
    if job.schedule is not None:
        parts.append(
            f"by schedule {job.schedule}"
            + (f" for {_time(job.scheduled_for)}" if job.scheduled_for else ", triggered")
        )
    if job.origin_id != job.id:
        parts.append(f"as job {job.origin_id} again")
    if job.idempotency_key is not None:
        parts.append(f"with key {job.idempotency_key}")
    return one_line("; ".join(parts))


def _attempted(attempt: Attempt) -> str:
    ran = (
        ""
        if attempt.started_at is None
        else f", after {words(max(0.0, (attempt.finished_at - attempt.started_at).total_seconds()))}"
    )
    release = "" if attempt.release is None else f", release {attempt.release}"
    came = (
        f"never began, found by {attempt.worker}"
        if attempt.verdict_rule == EXPIRED
        else f"by {attempt.worker}{release}{ran}"
    )
    text = f"attempt {attempt.attempt} {came}: {attempt.error_type}: {attempt.message}"
    if attempt.verdict is not None:
        text += f"; {attempt.verdict} ({attempt.verdict_rule})"
    if attempt.next_run_at is not None:
        text += f"; again at {_time(attempt.next_run_at)}"
    return one_line(text)


def _end(job: Job) -> Iterator[Step]:
    if job.finished_at is not None:
        yield Step(job.finished_at, job.id, job.status, _ended(job))
    elif job.status is Status.RUNNING and job.started_at is not None:
        yield Step(
            job.started_at,
            job.id,
            "running",
            one_line(f"attempt {job.attempts} by {job.locked_by}, since then"),
        )


def _ended(job: Job) -> str:
    if (
        job.status is Status.SUCCEEDED
        and job.started_at is not None
        and job.finished_at is not None
    ):
        ran = words(max(0.0, (job.finished_at - job.started_at).total_seconds()))
        return one_line(
            f"attempt {job.attempts} by {job.locked_by}, release {job.release}, after {ran}"
        )
    if (put := put_away(job)) is not None:
        return f"archived {put}"
    if job.error_type == OVERLAP:
        return one_line(_with("skipped", job.last_error))
    return one_line(_with("cancelled", job.cancel_reason))


def put_away(job: Job) -> str | None:
    """Who put a dead job away, as what, and why; None where nobody has."""
    resolution: Any = job.resolution
    if not isinstance(resolution, dict):
        return None
    became = (
        f", {resolution.get('as', 'requeued')} as job {resolution['requeued_as']}"
        if resolution.get("requeued_as")
        else ""
    )
    return one_line(_with(f"by {resolution.get('by')}{became}", resolution.get("why")))


def _acted(action: Deed, chain: Collection[int], id: int) -> Step:
    detail: Any = action.detail if isinstance(action.detail, dict) else {}
    job, to, became = action.job, "", ""
    if job is None:
        job, to = (
            id,
            "a restored copy "
            if "copy" in detail
            else "everything "
            if action.queue is None
            else f"queue {action.queue} ",
        )
    elif job not in chain:  # of which one of these is a run
        job, to = detail.get("run_again_as", id), f"of job {job} "
    elif "requeued_as" in detail:
        became = f", {detail.get('as', 'requeued')} as job {detail['requeued_as']}"
    elif "run_again_as" in detail:
        became = f", as job {detail['run_again_as']}"
    return Step(
        action.at,
        job,
        action.verb,
        one_line(_with(f"{to}by {action.by}{became}", action.why)),
        action=action,
    )


def _with(text: str, why: object) -> str:
    return f"{text}: {why}" if why else text


def _time(at: datetime | None) -> str:
    return "" if at is None else at.astimezone().isoformat(sep=" ", timespec="seconds")
