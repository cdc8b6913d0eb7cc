"""What a job waits for, in words. Pure: facts in, a sentence out."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from rota.model.job import Job, Status, WaitReason
from rota.model.units import local_time

_WAITING = (Status.QUEUED, Status.FAILED, Status.WAITING)
_CAPS = ("type", "queue")
_UNREADABLE = ("payload", "key")

IS_IMPORTED = 'is its module imported? App(jobs=["module:jobs"]) imports it'
"""What to ask first where workers do not know a type."""

UNREAD = timedelta(hours=1)
"""How long after its run_at a payload waits for another release, as in `job_claim`."""


class Holder(msgspec.Struct, frozen=True):
    id: int
    status: str
    since: datetime | None


class Awaited(msgspec.Struct, frozen=True):
    job: int | None
    """A job that has not ended; None: all have."""
    status: str | None
    total: int
    left: int
    """How many jobs have not ended."""
    stuck: str | None
    """Why it can never go on by itself: `dead`, `circle` or `lane`; None: it can."""


STUCK = {
    "dead": "is dead: retry or archive it",
    "circle": "waits for it in turn: cancel one of them",
    "lane": "comes after it in its ordered group: cancel one of them",
}


class WaitFacts(msgspec.Struct, frozen=True):
    now: datetime
    holds: bool
    """Whether it holds a place of its lane."""
    held: int
    """How many places of its lane others hold."""
    holders: tuple[Holder, ...]
    """The first holders."""
    next: int | None
    """The first due job of its lane that waits for a place."""
    most: int | None
    """The concurrency limit that it waits for; None: there is none any more."""
    running: int | None
    paused: str | None
    """What is paused: everything, or its queue."""
    paused_at: datetime | None
    paused_by: str | None
    mismatched: tuple[str, ...]
    """Releases that could not read its payload."""
    refused: str | None
    """What the worker that holds it cannot do, among that to write outcomes; None: it can."""
    refused_since: datetime | None
    unknown: bool
    """Whether workers of the last minute serve its queue, and none knows its type."""
    awaited: Awaited | None
    """None: it waits for no jobs."""


def explain_wait(job: Job, facts: WaitFacts) -> WaitReason | None:
    """Say what holds a job back besides its `run_at`; None: nothing does, or it does not wait."""
    if job.status is Status.DEAD and facts.holds:
        text = f"its ordered group {job.group_key} until you retry or archive it"
        return WaitReason(job.failed_at or facts.now, "halts", text)
    if job.status not in _WAITING:
        return _explain_running(job, facts) if job.status is Status.RUNNING else None
    kind, _, name = (job.waits_for or "").partition(" ")
    since = job.waits_since or job.run_at
    if facts.awaited is not None:
        return WaitReason(since, "waits", _explain_awaited(facts.awaited))
    if kind in _CAPS and job.status is Status.WAITING:
        return WaitReason(since, "waits", f"for a free slot of {kind} {name}{_count(facts)}")
    if kind in _UNREADABLE:
        return WaitReason(since, "waits", _explain_unreadable(job, facts, kind, name))
    if job.run_at > facts.now:
        if kind:
            what = "rate limit" if kind == "limit" else kind
            text = f"for {what} {name} until {local_time(job.run_at)}"
            return WaitReason(since, "waits", text)
        return None
    return _explain_due(job, facts)


def _explain_due(job: Job, facts: WaitFacts) -> WaitReason | None:
    if facts.paused is not None and facts.paused_at is not None:
        text = f"it is due, but {facts.paused} is paused by {facts.paused_by}"
        return WaitReason(max(job.run_at, facts.paused_at), "waits", text)
    if facts.unknown and job.status is not Status.WAITING:
        text = f"for a worker that declares type {job.job_type}: {IS_IMPORTED}"
        return WaitReason(job.run_at, "waits", text)
    if job.group_key is None or facts.holds:
        return None
    return _explain_lane(job, facts)


def _explain_unreadable(job: Job, facts: WaitFacts, kind: str, name: str) -> str:
    if kind == "key":
        return f"for a worker that has key {name} in ROTA_SECRET_KEYS, to open its secrets"
    until = local_time(job.run_at + UNREAD)
    releases = ", ".join(facts.mismatched)
    return (
        f"for a release that can read its payload: {releases} cannot; at {until} they try again, "
        "and it is dead if no other is alive"
    )


def _explain_running(job: Job, facts: WaitFacts) -> WaitReason | None:
    if job.locked_until is not None and job.locked_until < facts.now:
        text = f"for a worker to take it: the lease of {job.locked_by} has expired"
        return WaitReason(job.locked_until, "waits", text)
    if facts.refused is not None and facts.refused_since is not None:
        text = f"for its outcome to be written, if it has ended: {job.locked_by} cannot write any: "
        text += facts.refused
        return WaitReason(max(facts.refused_since, job.started_at or job.run_at), "waits", text)
    return None


def _explain_awaited(awaited: Awaited) -> str:
    if awaited.job is None:
        return "for jobs which have all ended: it goes on at the next look of a worker"
    if awaited.stuck is not None:
        text = f"for job {awaited.job}, which {STUCK[awaited.stuck]}"
    else:
        text = f"for job {awaited.job} ({awaited.status})"
    if awaited.total > 1:
        text += f"; {awaited.left} of {awaited.total} have not ended"
    return text


def _count(facts: WaitFacts) -> str:
    if facts.most is None:
        return ", which has no limit any more"
    return f" ({facts.running} of {facts.most} run)"


def _explain_lane(job: Job, facts: WaitFacts) -> WaitReason | None:
    lane = f"for its ordered group {job.group_key}"
    halting = [holder for holder in facts.holders if holder.status == Status.DEAD]
    if facts.held >= job.group_capacity:
        if halting:
            text = f"{lane}, which job {halting[0].id} halts: retry or archive that dead job"
        else:
            listed = ", ".join(_describe(holder) for holder in facts.holders)
            more = ", …" if facts.held > len(facts.holders) else ""
            verb = "is" if facts.held == 1 else "are"
            text = f"{lane}: {listed}{more} {verb} before it"
    elif facts.next is not None and facts.next != job.id:
        text = f"{lane}: job {facts.next} is before it"
    elif job.status is Status.WAITING:
        text = f"{lane}, which is free: it is next"
    else:
        return None  # the next claim takes it
    return WaitReason(job.run_at, "waits", text)


def _describe(holder: Holder) -> str:
    since = "" if holder.since is None else f" since {local_time(holder.since)}"
    return f"job {holder.id} ({holder.status}{since})"
