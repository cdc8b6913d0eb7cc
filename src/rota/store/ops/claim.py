"""How jobs are claimed, and the news that a claim brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter

import msgspec
from msgspec.structs import asdict, replace

from rota.errors import JobNotFound, UnknownJobType, UsageError, WrongStatus
from rota.model.job import Action, Job, Status
from rota.store.columns import CLAIMED, OF_THE_CLAIM
from rota.store.driver import Operation, Query, Row, format_params
from rota.store.errors import RowRefused
from rota.store.ops.actions import ActionRequest, act
from rota.store.ops.read import find, get, read_clock
from rota.store.ops.upkeep import UpkeepDue


class Branches(msgspec.Struct, frozen=True):
    """Where a claim looks: group `g` of slots owns the branches lo[g] … hi[g] (from 1), each a
    queue and a priority. Branches up to urgent_hi[g] may give all of its jobs, the others at most
    ordinary[g]."""

    jobs: list[int] = []
    ordinary: list[int] = []
    lo: list[int] = []
    urgent_hi: list[int] = []
    hi: list[int] = []
    queues: list[str] = []
    priorities: list[int] = []
    after_run_at: list[datetime] = []
    after_id: list[int] = []
    depths: list[timedelta] = []


AHEAD = timedelta(milliseconds=250)
"""How long before its slot a rate limit may give a start, as in the SQL function `limit_pace`."""


class Claimant(msgspec.Struct, frozen=True, dict=True):
    """The claiming worker, its release, and the types that it knows (aliases included), each with
    its lease, and whether its starts are recorded."""

    worker: str
    release: str
    types: list[str]
    leases: list[timedelta]
    records: list[bool]
    ahead: timedelta | None = AHEAD
    """How long before its slot a rate limit may give a start; None: limits are not asked."""

    @cached_property
    def params(self) -> dict[str, str | None]:
        """Its fields as the parameters of a statement: psycopg takes its time for each list."""
        return format_params(asdict(self))


class News(msgspec.Struct, frozen=True):
    look_back: list[tuple[str, datetime, datetime]] = []
    """(queue, look back to, asked at)"""
    priorities: list[tuple[str, int]] = []
    """(queue, a priority in use that the worker did not know)"""
    next_in_s: float | None = None
    """Seconds until the next job is due, if it is soon and the claim looked for priorities."""
    upkeep: UpkeepDue | None = None


class RefusedClaim(msgspec.Struct, frozen=True):
    """A due job that the database refuses to every claim; it stays as it is."""

    id: int
    queue: str
    priority: int
    run_at: datetime
    reason: str


class HeldUp(msgspec.Struct, frozen=True):
    """Due jobs of one queue and priority that a claim reached and that may not run yet: their
    lanes, limits or breakers have no room."""

    queue: str
    priority: int
    run_at: datetime
    """When the last of the jobs was due; `id` is its id."""
    id: int
    count: int


class Start(msgspec.Struct, frozen=True, array_like=True):
    """The start of a job, in seconds from the claim: given by a rate limit, or a trial's."""

    waits_for: str | None
    """What the job waits for if it cannot use the start, as in `job.waits_for`; None: no limit."""
    in_s: float
    """It may not begin before."""
    late_s: float | None
    """How much later it may begin; None: any time."""
    is_trial: bool = False
    """Whether it is the trial of its breaker."""


class Claimed(msgspec.Struct, frozen=True):
    """The result of a claim, with its time by the database's clock. `jobs` are in start order."""

    started: datetime
    snapshot: str
    """Which transactions were open: `pg_current_snapshot()`, and newer ones after a comma."""
    jobs: list[Job]
    news: News
    unrecorded: frozenset[int] = frozenset()
    """The jobs whose starts must be recorded before they begin."""
    suspects: frozenset[int] = frozenset()
    """The jobs whose last attempt was lost with its worker, which they may have killed."""
    capped: frozenset[int] = frozenset()
    """The jobs that count in the concurrency limit of their type or queue."""
    starts: Mapping[int, Start] = {}
    """The starts that rate limits and breakers gave, by job."""
    paused: frozenset[str] = frozenset()
    """Queues that are paused: they gave no job, but may have due jobs."""
    refused: tuple[RefusedClaim, ...] = ()
    held_up: tuple[HeldUp, ...] = ()

    @property
    def seen(self) -> list[Job | RefusedClaim | HeldUp]:
        """The jobs that the statement reached, in their order; the last of held-up jobs."""
        if self.refused or self.held_up:
            return sorted([*self.jobs, *self.refused, *self.held_up], key=_start_order)
        return list(self.jobs)

    def count(self) -> int:
        return len(self.jobs) + len(self.refused) + sum(held_up.count for held_up in self.held_up)


ID, _ORIGIN_ID, _QUEUE, _PRIORITY, _RUN_AT, _ATTEMPTS = map(
    CLAIMED.index, ("id", "origin_id", "queue", "priority", "run_at", "attempts")
)
_START_RECORDED, _SUSPECTED, _CAPPED, _REFUSAL, _START = map(CLAIMED.index, OF_THE_CLAIM)
_OF_THE_JOB = slice(len(OF_THE_CLAIM), len(CLAIMED))

_NO_NEWS = News()
_news = msgspec.json.Decoder(News)
_start = msgspec.json.Decoder(Start)
_order_in_priority = attrgetter("run_at", "id")
_priority = attrgetter("priority")


def claim(
    who: Claimant,
    branches: Branches,
    asked_since: Mapping[str, datetime],
    known: dict[str, list[int]] | None,
    refused: Sequence[int] | None = (),
    *,
    upkeep: str | None = None,
    poll: str | None = None,
) -> Operation[Claimed]:
    """Claim due jobs with one statement, which also asks `upkeep`, as `find_upkeep_due` does, and
    tells all workers of a `poll`.

    `asked_since` has each queue that is searched. With `known`, look for priorities that are in use
    and not in it. If a row is at fault, claim around it and around the jobs that are known to be
    `refused`; None: do not.
    """
    asked = {
        "jobs": branches.jobs,
        "ordinary": branches.ordinary,
        "lo": branches.lo,
        "urgent_hi": branches.urgent_hi,
        "hi": branches.hi,
        "branch_queues": branches.queues,
        "priorities": branches.priorities,
        "after_run_at": branches.after_run_at,
        "after_id": branches.after_id,
        "depths": branches.depths,
        "queues": list(asked_since),
        "asked_since": list(asked_since.values()),
        "probe": known is not None,
        "known": msgspec.json.encode(known or {}).decode(),
        "upkeep": upkeep,
        "poll": poll,
        "refused": list(refused) if refused else None,
    }
    params = {**who.params, **format_params(asked)}
    try:
        rows = yield Query("worker_claim", params)
    except RowRefused:
        if refused is None:
            raise
        rows = yield Query("worker_claim", {**params, "refused": "{}"})
    return _read_claim(who, rows)


def _read_claim(who: Claimant, rows: list[Row]) -> Claimed:
    *_, started, snapshot, news, _ = rows[-1]
    taken = [row for row in rows if row[ID] is not None and row[_REFUSAL] is None]
    others = [row for row in rows if row[ID] is None or row[_REFUSAL] is not None]
    held_up = [row for row in others if row[ID] is None and row[_PRIORITY] is not None]
    return replace(
        read_taken(who, taken, started),
        snapshot=snapshot,
        news=_NO_NEWS if news is None else _news.decode(news),
        paused=frozenset([row[_QUEUE] for row in others if row[_QUEUE] and row[_PRIORITY] is None]),
        refused=tuple([_read_refused(row) for row in others if row[ID] is not None]),
        held_up=tuple(
            [
                HeldUp(row[_QUEUE], row[_PRIORITY], row[_RUN_AT], row[_ORIGIN_ID], row[_ATTEMPTS])
                for row in held_up
            ]
        ),
    )


def _make_jobs(rows: list[Row], who: Claimant, started: datetime) -> list[Job]:
    # mypy counts the columns of a row as too many.
    jobs = [Job(*row[_OF_THE_JOB], who.worker, started) for row in rows]  # type: ignore[call-arg]
    # Two sorts by fields are faster than one that calls a function for each.
    jobs.sort(key=_order_in_priority)
    jobs.sort(key=_priority, reverse=True)
    return jobs


def read_taken(who: Claimant, rows: list[Row], started: datetime) -> Claimed:
    """Return what was claimed without news: rows of jobs only, which begin with CLAIMED."""
    return Claimed(
        started,
        "",
        _make_jobs(rows, who, started),
        _NO_NEWS,
        unrecorded=frozenset([row[ID] for row in rows if row[_START_RECORDED] is False]),
        suspects=frozenset([row[ID] for row in rows if row[_SUSPECTED]]),
        capped=frozenset([row[ID] for row in rows if row[_CAPPED]]),
        starts={row[ID]: _start.decode(row[_START]) for row in rows if row[_START] is not None},
    )


def _read_refused(row: Row) -> RefusedClaim:
    return RefusedClaim(row[ID], row[_QUEUE], row[_PRIORITY], row[_RUN_AT], row[_REFUSAL])


def _start_order(job: Job | RefusedClaim | HeldUp) -> tuple[int, datetime, int]:
    return (-job.priority, job.run_at, job.id)


def claim_one(who: Claimant, id_: int) -> Operation[Claimed]:
    """Claim this job, whatever its run_at. No news come with it. Raises JobNotFound;
    UnknownJobType, if the claimant does not know its type; WrongStatus, if it is neither queued nor
    failed; and UsageError, if something else holds it back, as `_refuse_claim` says."""
    found = yield from get(id_)
    if found.status != Status.WAITING:  # the database says what such a job waits for
        _refuse_status(id_, found.status)
    if found.job_type not in who.types:
        raise UnknownJobType(found.job_type)
    rows = yield from _claim_row(who, id_)
    if not rows:
        for now in (yield from find(ids=[id_])):
            _refuse_status(id_, now.status)
        raise JobNotFound(id_)
    if rows[0][_REFUSAL] is not None:
        _refuse_claim(id_, rows[0][_QUEUE], rows[0][_REFUSAL])
    return read_taken(who, rows, (yield from read_clock()))


def claim_copy(who: Claimant, dead: int, by: str) -> Operation[Claimed]:
    """Claim a copy of this dead job, with its origin, in one transaction. Only this claim can run
    the copy: if its lease expires, no worker begins it. Raises WrongStatus if the job is not dead,
    and UsageError as `claim_one`."""
    request = ActionRequest(Action.RUN_AGAIN, by, "rota run")
    [answer] = yield from act(request, [dead])
    if not (yield Query("copy_adopt", {"id": answer.new_id, "dead": dead})):
        raise WrongStatus(dead, (Status.DEAD.value,), answer.status or "gone")
    rows = yield from _claim_row(who, answer.new_id or 0)
    if rows[0][_REFUSAL] is not None:
        _refuse_claim(dead, rows[0][_QUEUE], rows[0][_REFUSAL])
    claimed = read_taken(who, rows, (yield from read_clock()))
    claimed.jobs[:] = [msgspec.structs.replace(job, expires_at=None) for job in claimed.jobs]
    return claimed


def _claim_row(who: Claimant, id_: int) -> Operation[list[Row]]:
    asked = {
        "id": id_,
        "worker": who.worker,
        "types": who.types,
        "leases": who.leases,
        "records": who.records,
    }
    return (yield Query("job_claim_one", asked))


def _refuse_claim(id_: int, queue: str, refusal: str) -> None:
    if refusal == "paused":
        raise UsageError(
            f"job {id_} is in queue {queue!r}, which is paused, and was not claimed; resume the "
            "queue first"
        )
    if refusal == "locked":
        raise UsageError(
            f"job {id_} is locked by another transaction, and was not claimed; try again when that "
            "has ended"
        )
    kind, _, name = refusal.partition(" ")
    if kind == "lane":
        raise UsageError(
            f"job {id_} waits for its ordered group, and was not claimed: job {name} comes first"
        )
    if kind == "job":
        raise UsageError(f"job {id_} waits for job {name} to end, and was not claimed")
    if name:
        raise UsageError(
            f"job {id_} was not claimed: as many jobs of {kind} {name!r} run as its limit allows"
        )
    _refuse_status(id_, refusal)


def _refuse_status(id_: int, status: str) -> None:
    """Raise WrongStatus unless a job with this status can be claimed."""
    if status in (Status.QUEUED, Status.FAILED):
        return
    advice = {
        Status.RUNNING: "; a worker runs it, and `rota workers` shows whether that one is alive",
        Status.DEAD: "; requeue it first",
    }.get(Status(status), "")
    raise WrongStatus(id_, (Status.QUEUED.value, Status.FAILED.value), status, advice)


def look_back(queue: str, to: datetime) -> Operation[None]:
    """Ask all workers to search a queue again from `to` on."""
    yield Query("look_back", {"queue": queue, "to": to})


def request_notify(peer: str, queues: Sequence[str], for_s: float) -> Operation[bool]:
    """Ask producers to wake this worker for jobs in these queues for `for_s` seconds; 0: no more.
    `peer` is its kind and its name. Return False if a queue's row was locked, and so left out."""
    asked = {"peer": peer, "queues": sorted(queues), "for_s": for_s}
    return len((yield Query("notify_request", asked))) == len(queues)


def wake_others(peer: str, queues: Sequence[str], most: int | None = None) -> Operation[None]:
    """Wake so many other workers of each kind that wait for these queues; None: all."""
    yield Query("wake_up", {"queues": list(queues), "most": most, "not": peer})
