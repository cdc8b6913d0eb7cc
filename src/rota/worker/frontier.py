"""Where a worker looks for due jobs. Pure: times are given, no clock is read.

For each (queue, priority) a worker keeps a *frontier*: the (run_at, id) up to which it has seen
everything. Claims scan ahead of it, so they never walk over index entries of gone jobs, which
vacuum cannot remove while an old snapshot is open. Jobs that appear behind it (by a late commit or
a claim that was rolled back) are found by *looks back*: often a short way, rarely a long one, and
from the beginning. Each claim also lists the open transactions. Once a transaction has ended, the
next claim looks back to where it may have begun.

Property tests hold the promise: the first look back that is deep enough finds a job that becomes
visible behind the frontier. Each depth but the shallowest is searched once per period, or as its
share of one connection's time allows, whichever is rarer. The shallowest is part of every claim
that follows one that reached the end.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product

import msgspec

from rota.model.job import Job
from rota.runtime.clock import count_usual
from rota.store.ops import Branches, Claimed, HeldUp, RefusedClaim
from rota.worker.slots import ORDINARY_MAX, SlotGroup

Found = Mapping[str, Sequence[Job | RefusedClaim | HeldUp]]
"""The jobs that a claim found, by queue and in the order of the starts."""
Key = tuple[datetime, int]
"""(run_at, id): the order of jobs within one priority."""

BEGINNING: Key = (datetime(1970, 1, 1, tzinfo=UTC), 0)
EVERYTHING_S = 1e10
"""A depth further back than any run_at."""

DEPTHS_S = (0.25, 1.5, 6.0, 24.0, 96.0, 384.0, EVERYTHING_S)
PERIODS_S = (0.06, 0.25, 1.0, 4.0, 16.0, 64.0, 1.0)
"""The shortest time between two looks back of each depth. The deepest costs nothing on a small
table; on a large table SHARE rules."""

SHARE = 0.01
"""The share of one connection's time for each depth, over all workers."""
ENDED_SHARE = 0.04
"""The share of one connection's time for looks back after ended transactions."""
ENDED_PERIOD_S = (0.06, 0.5)
"""The shortest and the longest time between two looks back after ended transactions. Up to
ENDED_SHALLOW_S the longest counts more than the share."""
ENDED_SHALLOW_S = 6.0
ENDED_DEPTH_S = DEPTHS_S[-2]
"""The deeper looks back find the jobs of transactions that were open for longer."""
MARGIN_S = 0.1
"""A job may be due a little before its transaction has a number or the server looks."""


class ClaimTiming(msgspec.Struct, frozen=True):
    """When a claim was made. Times are monotonic seconds."""

    now: float
    """After the claim."""
    took_s: float
    started: datetime
    """The database's clock when its statement started."""
    workers: int
    """How many workers share the budget for looks."""


class Frontier(msgspec.Struct):
    key: Key = BEGINNING
    reached_end: bool = True
    """Whether the last scan came to the end of what is due."""
    due_at: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(DEPTHS_S))
    """When each depth may be searched again, in monotonic seconds."""
    took_s: list[float] = msgspec.field(default_factory=lambda: [1.0] * len(DEPTHS_S))
    """How long the last claim of each depth took, as far as it counts."""
    ended_from: float = math.inf
    """Ended transactions may have left jobs that are due from here on; infinity: there are none."""
    ended_took_s: float = ENDED_PERIOD_S[0]
    ended_due_at: float = 0.0
    """When the next look back after ended transactions may be made."""

    def depth_s(self, now: float) -> float:
        """How far behind the frontier the next claim should search: the deepest due look back."""
        age_s = now - self.ended_from
        is_due = now >= self.ended_due_at and age_s <= ENDED_DEPTH_S
        depth_s = age_s + MARGIN_S if is_due else 0.0
        for level in range(len(DEPTHS_S) - 1, -1, -1):
            if now >= self.due_at[level]:
                return max(depth_s, DEPTHS_S[level])
        return max(depth_s, DEPTHS_S[0] if self.reached_end else 0.0)

    def advance(
        self, claim: ClaimTiming, depth_s: float, last: Key | None, *, to_the_end: bool
    ) -> bool:
        """Move the frontier by what a claim found here: it searched `depth_s` behind the frontier,
        returned jobs up to the key `last`, if any, and saw all that was due or only some. Return
        whether more lay behind the frontier than it could take: other workers look back then."""
        now, took_s = claim.now, claim.took_s
        self.reached_end = to_the_end
        for level, covered_s in enumerate(DEPTHS_S):
            if covered_s < depth_s:
                self.due_at[level] = max(self.due_at[level], now + PERIODS_S[level])
            elif covered_s == depth_s:
                self.took_s[level] = usual_s = count_usual(took_s, self.took_s[level])
                self.due_at[level] = now + max(PERIODS_S[level], usual_s * claim.workers / SHARE)
        age_s = now - took_s - self.ended_from
        if (to_the_end or last is not None) and 0 <= age_s <= depth_s:
            self.ended_from = math.inf
            least_s, most_s = ENDED_PERIOD_S
            self.ended_took_s = count_usual(took_s, self.ended_took_s)
            pause_s = max(least_s, self.ended_took_s * claim.workers / ENDED_SHARE)
            is_shallow = age_s <= ENDED_SHALLOW_S
            self.ended_due_at = now + (min(pause_s, most_s) if is_shallow else pause_s)
        if to_the_end:
            self.key = max(self.key, (claim.started, 0))
            return False
        if last is None:
            return False
        behind = bool(depth_s) and last < self.key
        # More behind than it could take: continue from there, or the rest waits for the next look
        # back.
        self.key = last if behind else max(self.key, last)
        return behind

    def look_back(self, to: datetime) -> None:
        self.key = min(self.key, (to, 0))

    def look_back_for_ended(self, since: float, now: float) -> None:
        """Look back soon to `since`, from when on a transaction was open that has ended."""
        if now - self.ended_from > ENDED_DEPTH_S:
            self.ended_from = math.inf
        if now - since <= ENDED_DEPTH_S:
            self.ended_from = min(self.ended_from, since)

    def search_everything(self) -> None:
        """Let the next look back be the deepest, whatever it costs."""
        self.due_at[-1] = 0.0


class UnderWay:
    """The transactions that were open at the last claim, and how long at most. A job that such a
    transaction inserts becomes visible at its commit, behind the frontier."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """By transaction: the claim before the first that saw it, in monotonic seconds."""
        self._claimed_at = -math.inf

    def learn(self, snapshot: str, at: float) -> float | None:
        """Note which transactions a claim saw at `at`. Return the earliest possible start of a
        transaction that has ended since the claim before, within ENDED_DEPTH_S; None: none has
        ended."""
        seen = snapshot.rpartition(":")[2]
        numbers = [number for number in seen.split(",") if number]
        before, self._claimed_at = self._claimed_at, at
        if not self._since and not numbers:
            return None
        since = {number: self._since.get(number, before) for number in numbers}
        ended = [self._since[number] for number in self._since.keys() - since.keys()]
        self._since = since
        return min((start for start in ended if at - start <= ENDED_DEPTH_S), default=None)


class GroupRequest(msgspec.Struct, frozen=True):
    group: SlotGroup
    queues: tuple[str, ...]
    """In search order, first for urgent jobs, then for ordinary ones."""
    jobs: int
    """How many jobs these queues may give."""
    ordinary: int
    """How many of the jobs may be ordinary; 0: it searches for urgent jobs only."""


class ClaimRequest(msgspec.Struct):
    groups: list[GroupRequest] = []
    depths_s: dict[tuple[str, int], float] = {}
    """How far behind its frontier each (queue, priority) is searched."""
    branches: Branches = msgspec.field(default_factory=Branches)
    """Where it searches, as the statement takes it."""

    @property
    def limit(self) -> int:
        return sum(group.jobs for group in self.groups)

    @property
    def queues(self) -> list[str]:
        return [queue for group in self.groups for queue in group.queues]

    @property
    def is_for_urgent(self) -> bool:
        """Whether it searches for urgent jobs only."""
        return not any(group.ordinary for group in self.groups)

    def covers_all(self, groups: Sequence[SlotGroup]) -> bool:
        return len(self.groups) == len(groups) and all(group.ordinary for group in self.groups)

    def covers_everything(self, queues: Iterable[str]) -> bool:
        return (
            set(self.queues) == set(queues)
            and all(group.ordinary for group in self.groups)
            and all(depth_s == EVERYTHING_S for depth_s in self.depths_s.values())
        )

    def sort(self, seen: Sequence[Job | RefusedClaim | HeldUp]) -> list[GroupAnswer]:
        """Return what a claim found for each group; `seen` is in the order of the starts."""
        queues = {job.queue for job in seen}
        by_queue = {queue: [job for job in seen if job.queue == queue] for queue in queues}
        return [_sort_for(group, by_queue) for group in self.groups]


def _sort_for(group: GroupRequest, by_queue: Found) -> GroupAnswer:
    urgent: dict[str, Sequence[Job | RefusedClaim | HeldUp]] = {}
    ordinary: dict[str, Sequence[Job | RefusedClaim | HeldUp]] = {}
    for queue in group.queues:
        jobs = by_queue.get(queue, ())
        # The highest priority comes first.
        at = bisect_left(jobs, -ORDINARY_MAX, key=lambda job: -job.priority)
        urgent[queue], ordinary[queue] = jobs[:at], jobs[at:]
    return GroupAnswer(group, urgent, ordinary, _count(urgent), _count(ordinary))


class GroupAnswer(msgspec.Struct, frozen=True):
    asked: GroupRequest
    urgent: Found
    ordinary: Found
    urgent_count: int
    ordinary_count: int
    """How many jobs the claim reached of each kind, with held-up jobs."""

    @property
    def may_leave_urgent(self) -> bool:
        return self.urgent_count >= self.asked.jobs

    @property
    def may_leave_ordinary(self) -> bool:
        room = self.asked.jobs - self.urgent_count
        return self.ordinary_count >= min(self.asked.ordinary, room)

    @property
    def is_full(self) -> bool:
        """Whether it found as many jobs as it could take, of any kind that it searched for."""
        return self.may_leave_urgent or (self.asked.ordinary > 0 and self.may_leave_ordinary)


def _count(found: Found) -> int:
    held_up = [job for jobs in found.values() for job in jobs if job.__class__ is HeldUp]
    return sum(map(len, found.values())) + sum(job.count - 1 for job in held_up)


class Frontiers:
    """The frontiers of one worker, by queue and priority."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._by_queue: dict[str, dict[int, Frontier]] = {queue: {} for queue in queues}
        self._asked_since = dict.fromkeys(self._by_queue, BEGINNING[0])
        """By queue: the newest request of any worker to look back that was read."""
        self._under_way = UnderWay()

    @property
    def queues(self) -> list[str]:
        return list(self._by_queue)

    def add(self, queue: str, priority: int) -> None:
        if queue in self._by_queue:
            self._by_queue[queue].setdefault(priority, Frontier())

    # What to ask

    def make_request(self, groups: Iterable[SlotGroup], first: int, now: float) -> ClaimRequest:
        """Return a claim of as many jobs as the groups want. `first` turns each group's queues."""
        request = ClaimRequest()
        branches = request.branches
        for group in groups:
            group.measure(now)
            jobs, ordinary = group.wanted, group.wanted_ordinary
            if jobs <= 0 or not (ordinary or now >= group.search_at):
                continue
            at = first % len(group.queues)
            queues = group.queues[at:] + group.queues[:at]
            asked = GroupRequest(group, queues, group.count_jobs(jobs), group.count_jobs(ordinary))
            request.groups.append(asked)
            branches.jobs.append(asked.jobs)
            branches.ordinary.append(asked.ordinary)
            branches.lo.append(len(branches.queues) + 1)
            self._add_branches(request, queues, now, ordinary=False)
            branches.urgent_hi.append(len(branches.queues))
            if ordinary:
                self._add_branches(request, queues, now, ordinary=True)
            branches.hi.append(len(branches.queues))
        return request

    def _add_branches(
        self, request: ClaimRequest, queues: Sequence[str], now: float, *, ordinary: bool
    ) -> None:
        branches = request.branches
        for queue in queues:
            for priority, frontier in sorted(self._by_queue[queue].items(), reverse=True):
                if (priority <= ORDINARY_MAX) is not ordinary:
                    continue
                request.depths_s[queue, priority] = depth_s = frontier.depth_s(now)
                run_at, id_ = frontier.key
                branches.queues.append(queue)
                branches.priorities.append(priority)
                branches.after_run_at.append(run_at)
                branches.after_id.append(id_)
                branches.depths.append(timedelta(seconds=depth_s))

    def find_asked_since(self, request: ClaimRequest) -> dict[str, datetime]:
        """Return for each queue since when requests to look back are new."""
        return {queue: self._asked_since[queue] for queue in request.queues}

    def list_known(self, request: ClaimRequest) -> dict[str, list[int]]:
        return {queue: list(self._by_queue[queue]) for queue in request.queues}

    # What came back

    def learn(
        self,
        request: ClaimRequest,
        answers: Sequence[GroupAnswer],
        claimed: Claimed,
        timing: ClaimTiming,
    ) -> dict[str, datetime]:
        """Move the frontiers by what a claim returned. Return, for each queue in which a look back
        found more than it could take, from where all workers should look back."""
        for queue, priority in claimed.news.priorities:
            self.add(queue, priority)
        behind: dict[str, datetime] = {}
        if not claimed.news.priorities:  # otherwise nothing was claimed, which says nothing
            behind = self._advance(request, answers, claimed, timing)
        for queue, to, asked_at in claimed.news.look_back:
            self._asked_since[queue] = asked_at
            for frontier in self._by_queue[queue].values():
                frontier.look_back(to)
        since = self._under_way.learn(claimed.snapshot, timing.now - timing.took_s)
        if since is not None:
            for frontiers in self._by_queue.values():
                for frontier in frontiers.values():
                    frontier.look_back_for_ended(since, timing.now)
        return behind

    def find_ended_due_at(self, request: ClaimRequest, claimed: Claimed, now: float) -> float:
        """Return when a claim like this may look back after an ended transaction."""
        searched = [
            self._by_queue[queue][priority]
            for queue, priority in request.depths_s
            if queue not in claimed.paused
        ]
        since = now - ENDED_DEPTH_S
        due_at = [found.ended_due_at for found in searched if since <= found.ended_from < math.inf]
        return min(due_at, default=math.inf)

    def search_everything(self) -> None:
        for frontiers in self._by_queue.values():
            for frontier in frontiers.values():
                frontier.search_everything()

    def _advance(
        self,
        request: ClaimRequest,
        answers: Sequence[GroupAnswer],
        claimed: Claimed,
        timing: ClaimTiming,
    ) -> dict[str, datetime]:
        behind: dict[str, datetime] = {}
        for answer in answers:
            parts = (
                (False, answer.urgent, answer.may_leave_urgent),
                (True, answer.ordinary, answer.may_leave_ordinary),
            )
            for (is_ordinary, found, is_cut), queue in product(parts, answer.asked.queues):
                if queue in claimed.paused:
                    continue  # due jobs were left out: the frontiers stay
                jobs = found[queue]
                if is_cut and not jobs:
                    continue  # the limit was reached before this queue
                depths_s = {
                    priority: request.depths_s[queue, priority]
                    for priority in self._by_queue[queue]
                    if (priority <= ORDINARY_MAX) is is_ordinary
                    and (queue, priority) in request.depths_s
                }
                back_to = self._advance_queue(queue, jobs, depths_s, timing, is_cut=is_cut)
                if back_to is not None:
                    behind[queue] = min(back_to, behind.get(queue, back_to))
        return behind

    def _advance_queue(
        self,
        queue: str,
        jobs: Sequence[Job | RefusedClaim | HeldUp],
        depths_s: Mapping[int, float],
        timing: ClaimTiming,
        *,
        is_cut: bool,
    ) -> datetime | None:
        """Move the frontiers of a queue's urgent or ordinary jobs, of which due jobs may be left if
        `is_cut`. Return from where others should look back."""
        lowest = min([job.priority for job in jobs], default=101)
        # In start order, so the last of each priority is its greatest.
        last = {job.priority: (job.run_at, job.id) for job in jobs}
        back_to: list[datetime] = []
        for priority, depth_s in depths_s.items():
            if is_cut and priority < lowest:
                continue
            frontier, to_the_end = self._by_queue[queue][priority], not is_cut or priority > lowest
            if frontier.advance(timing, depth_s, last.get(priority), to_the_end=to_the_end):
                back_to.append(min(job.run_at for job in jobs if job.priority == priority))
        return min(back_to, default=None)
