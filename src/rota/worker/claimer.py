"""Claims due jobs: one statement for all queues and priorities, ahead of the frontiers, as many as there is room for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.errors import DatabaseUnavailable
from rota.observe.events import JobClaimed
from rota.runtime.service import Service
from rota.store import ops
from rota.worker.frontier import EVERYTHING_S, Frontier
from rota.worker.held import Held
from rota.worker.left_out import LeftOut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.declare.config import WorkerConfig
    from rota.declare.job_type import JobType
    from rota.model.job import Job
    from rota.observe.events import Bus
    from rota.store.link import StoreLink
    from rota.store.ops import Branches, Claimant, Claimed, RefusedClaim
    from rota.worker.executor import Executor
    from rota.worker.held import HeldJobs
    from rota.worker.lane import Lane

PROBE_S = 0.1
"""Under load, unknown priorities are looked for so often; an idle claim always looks."""
BELL_S = 10.0
"""A waiting worker asks to be rung for so long, and again at half of it."""
UNWRITTEN_MAX = 5_000
"""While so many ends wait to be written nothing more is claimed: all of them would be repeated if this worker died now."""
_BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Look:
    """One claim's question: for each queue its slots and the priorities it looks at, each so deep."""

    slots: dict[str, int] = field(default_factory=dict)
    depths_s: dict[tuple[str, int], float] = field(default_factory=dict)


class Claimer(Service):
    """Keeps the executor's lanes filled. In a drain it ends when a look at everything came back empty."""

    name = "claimer"

    def __init__(
        self,
        bus: Bus,
        link: StoreLink,
        executor: Executor,
        held: HeldJobs,
        who: Claimant,
        types: Mapping[str, JobType[..., ..., Any]],
        config: WorkerConfig,
        *,
        rings: bool,
    ) -> None:
        super().__init__(bus)
        self.claimed = 0
        self.failure: DatabaseUnavailable | None = None
        """In a drain: the database was unreachable, which ended it."""
        self.workers = 1
        """How many workers share the budget for looks back."""
        self.paused: frozenset[str] = frozenset()
        """Those of its queues that were paused when the last claim asked."""
        self._link = link
        self._executor = executor
        self._held = held
        self._who = who
        self._types = types
        self._leases_s = {
            name: lease.total_seconds() for name, lease in zip(who.types, who.leases, strict=True)
        }
        self._config = config
        self._rings = rings
        self._frontiers: dict[str, dict[int, Frontier]] = {
            queue: {} for lane in executor.lanes for queue in lane.queues
        }
        for job_type in types.values():
            if job_type.options.queue in self._frontiers:
                self._frontiers[job_type.options.queue].setdefault(
                    job_type.options.priority, Frontier()
                )
        self._asked_since = dict.fromkeys(self._frontiers, _BEGINNING_OF_TIME)
        self._asked_at: dict[str, float] = {}
        self._left_out = LeftOut(bus, self.name)
        self._first_queue = 0
        self._pause_s = config.poll_least_s
        self._probe_at = 0.0
        self._bell_at = 0.0
        self._silences = False
        self._ends_at = monotonic() + config.drain_for_s if config.drain_for_s is not None else None

    @property
    def queues(self) -> list[str]:
        """The queues that this worker serves."""
        return list(self._frontiers)

    def ring(self, queue: str) -> None:
        """A job has just been committed to this queue."""
        if queue in self._frontiers:
            self._pause_s = self._config.poll_least_s
            self.wake()

    def mute(self) -> None:
        """Rings come faster than they help: poll instead, and do not ask for them for a while."""
        self._bell_at = monotonic() + BELL_S
        self._silences = True

    async def tick(self) -> float | None:
        """Claim once."""
        if self._ends_at is not None and monotonic() >= self._ends_at:
            self.stop()
            return 0
        if self._unwritten >= UNWRITTEN_MAX:
            return self._config.poll_s
        look = self._look()
        if not look.slots:
            if self._config.drain and self._ends_at is not None:
                return max(0.0, self._ends_at - monotonic())
            return None  # the executor wakes us when a slot is free
        if self._silences:
            self._silences = False
            await self._link.run(ops.ring_me(self.queues, 0.0))
        before = monotonic()
        nothing_held = not self._held
        probe = before >= self._probe_at
        known = {queue: list(self._frontiers[queue]) for queue in look.slots} if probe else None
        claimed = await self._link.run(
            ops.claim(
                self._who,
                self._branches(look),
                self._limit(look),
                [self._asked_since[queue] for queue in look.slots],
                known,
                self._left_out.now(),
            )
        )
        self._left_out.add(claimed.refused)
        self.paused = claimed.paused | (self.paused - look.slots.keys())
        now = monotonic()
        if probe:
            self._probe_at = now + PROBE_S
        self._take(claimed, before)
        await self._learn(look, claimed, now, now - before)
        return await self._pause_after(look, claimed, probed=probe, nothing_held=nothing_held)

    def away(self, error: DatabaseUnavailable, back_off_s: float) -> float | None:
        """In a drain the first failure ends it: whoever started it will start it again."""
        if self._config.drain:
            self.failure = error
            self.stop()
            return 0
        return super().away(error, back_off_s)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    # What to ask

    @property
    def _unwritten(self) -> int:
        return len(self._held) - sum(lane.running + lane.waiting for lane in self._executor.lanes)

    def _look(self) -> Look:
        look = Look()
        now = monotonic()
        for lane in self._executor.lanes:
            lane.measure(now)
            wanted = lane.wanted
            if wanted > 0:
                for queue in self._rotated(lane):
                    look.slots[queue] = wanted
                    for priority, frontier in self._frontiers[queue].items():
                        look.depths_s[queue, priority] = frontier.depth_s(now)
        return look

    def _rotated(self, lane: Lane) -> tuple[str, ...]:
        self._first_queue += 1
        first = self._first_queue % len(lane.queues)
        return lane.queues[first:] + lane.queues[:first]

    def _limit(self, look: Look) -> int:
        return sum(
            max((look.slots.get(queue, 0) for queue in lane.queues), default=0)
            for lane in self._executor.lanes
        )

    def _branches(self, look: Look) -> Branches:
        branches = ops.Branches([], [], [], [], [], [], [], [])
        for queue, slots in look.slots.items():
            branches.queues.append(queue)
            branches.slots.append(slots)
            branches.lo.append(len(branches.priorities) + 1)
            for priority in sorted(self._frontiers[queue], reverse=True):
                run_at, id_ = self._frontiers[queue][priority].key
                branches.priorities.append(priority)
                branches.after_run_at.append(run_at)
                branches.after_id.append(id_)
                branches.depths.append(timedelta(seconds=look.depths_s[queue, priority]))
            branches.hi.append(len(branches.priorities))
        return branches

    # What came back

    def _take(self, claimed: Claimed, before: float) -> None:
        if not claimed.jobs:
            return
        tells = self.bus.wants(JobClaimed)
        fresh = []
        for job in claimed.jobs:
            held = Held(job, self._types[job.job_type], before, self._leases_s[job.job_type])
            before_it = self._held.get(job.id)
            if before_it is not None:
                self._executor.lose(
                    before_it
                )  # its lease expired unnoticed, and the job has come back under a new claim
            self._held[job.id] = held
            fresh.append(held)
            if tells:
                self.bus.emit(JobClaimed.of(job, self._who.worker))
        self.claimed += len(fresh)
        self._executor.take(fresh)

    async def _learn(self, look: Look, claimed: Claimed, now: float, took_s: float) -> None:
        """Move the frontiers; where a look back found more than it could take, ask all workers to look back."""
        for queue, priority in claimed.news.priorities:
            self._frontiers[queue].setdefault(priority, Frontier())
        if claimed.news.priorities:
            self._look_back_as_asked(claimed)
            return  # nothing was claimed: that nothing came says nothing
        by_queue: dict[str, list[Job | RefusedClaim]] = {}
        seen = claimed.seen
        for job in seen:
            by_queue.setdefault(job.queue, []).append(job)
        full = len(seen) >= self._limit(look)
        for queue, slots in look.slots.items():
            jobs = by_queue.get(queue, [])
            if queue in claimed.paused:
                continue  # due jobs were left out: its frontiers wait where they are
            if full and not jobs:
                continue  # the limit was reached before it came to this queue
            cut = full or len(jobs) >= slots
            behind = self._advance(queue, jobs, look, claimed.started, now, took_s, cut=cut)
            if behind is not None and now - self._asked_at.get(queue, -1.0) >= 1.0:
                self._asked_at[queue] = now
                await self._link.run(ops.look_back(queue, behind))
        self._look_back_as_asked(claimed)

    def _look_back_as_asked(self, claimed: Claimed) -> None:
        for queue, to, asked_at in claimed.news.look_back:
            self._asked_since[queue] = asked_at
            for frontier in self._frontiers[queue].values():
                frontier.look_back(to)

    def _advance(
        self,
        queue: str,
        jobs: list[Job | RefusedClaim],
        look: Look,
        started: datetime,
        now: float,
        took_s: float,
        *,
        cut: bool,
    ) -> datetime | None:
        lowest = min((job.priority for job in jobs), default=101)
        last: dict[int, tuple[datetime, int]] = {}
        for job in jobs:  # in start order, so the last of each priority is its greatest
            last[job.priority] = (job.run_at, job.id)
        behind: datetime | None = None
        for priority, frontier in self._frontiers[queue].items():
            if (queue, priority) not in look.depths_s or (cut and priority < lowest):
                continue
            to_the_end = not cut or priority > lowest
            depth_s = look.depths_s[queue, priority]
            if frontier.advance(
                now,
                took_s,
                depth_s,
                self.workers,
                started,
                last.get(priority),
                to_the_end=to_the_end,
            ):
                first = min(job.run_at for job in jobs if job.priority == priority)
                behind = first if behind is None else min(behind, first)
        return behind

    async def _pause_after(
        self, look: Look, claimed: Claimed, *, probed: bool, nothing_held: bool
    ) -> float | None:
        news = bool(claimed.news.look_back or claimed.news.priorities)
        seen = len(claimed.jobs) + len(claimed.refused)
        if seen or news:
            self._pause_s = self._config.poll_least_s
            # A full claim asks again at once; after one that came to the end there is nothing yet.
            return 0 if news or seen >= self._limit(look) else self._pause_s
        if self._config.drain:
            return self._end_drain(look, probed=probed, nothing_held=nothing_held)
        self._probe_at = 0.0
        await self._ask_for_bell()
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, self._config.poll_s)
        return pause_s

    def _end_drain(self, look: Look, *, probed: bool, nothing_held: bool) -> float | None:
        """Over when a look at everything came back empty that began after the last of this worker's own jobs had ended."""
        everywhere = set(look.slots) == set(self._frontiers) and all(
            depth_s == EVERYTHING_S for depth_s in look.depths_s.values()
        )
        if nothing_held and probed and everywhere:
            self.stop()
            return 0
        self._probe_at = 0.0
        for frontiers in self._frontiers.values():
            for frontier in frontiers.values():
                frontier.look_at_everything()
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, self._config.poll_s)
        return 0 if not self._held else pause_s

    async def _ask_for_bell(self) -> None:
        now = monotonic()
        if self._rings and now >= self._bell_at and self._pause_s > self._config.poll_least_s:
            self._bell_at = now + BELL_S / 2
            await self._link.run(ops.ring_me(self.queues, BELL_S + self._config.poll_s))
