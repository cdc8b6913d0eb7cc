"""Claims due jobs: one statement for all queues and priorities, as many as there is room for."""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Collection, Coroutine, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.errors import DatabaseUnavailable
from rota.model.back_off import BackOff
from rota.model.failure import one_line
from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.link import StoreLink
from rota.store.ops import Branches, Claimed, RefusedClaim
from rota.upkeep.asker import REST_MAX_S, Asker, Question
from rota.upkeep.lanes import PORTION, LaneSweeper
from rota.upkeep.quarantine import Quarantine, RefusalLog
from rota.upkeep.waits import WaitSweeper
from rota.worker.attempt import Attempt, make_attempts
from rota.worker.copy_guard import CopyGuard
from rota.worker.executor import Executor
from rota.worker.finisher import Finisher
from rota.worker.frontier import ClaimRequest, ClaimTiming, Frontiers, GroupAnswer
from rota.worker.listener import NOTIFY_S
from rota.worker.spec import WorkerSpec

PROBE_S = 0.1
"""Seconds between two claims of a busy worker that look for new priorities and the next due job."""
FLOOD_S = 10.0
"""How long no wake-ups are asked for after a flood of wake-ups."""
REST_SHARES = (0.65, 0.8)
"""How long an idle worker rests after another worker's look, as a share of the pause of a worker
that is alone. The worker that looks for others pauses for half of it: one looks each second."""
UNWRITTEN_MAX = 5_000
"""The worker claims nothing with so many unwritten outcomes: their jobs would run again."""
AWAY_S = 10.0
"""A drain that can write no outcome for this long ends, and cron starts the next drain."""
QUARANTINE_MAX = 10_000
"""Most jobs in quarantine because the database refuses them; with more, it is at fault."""
QUARANTINE_S = (10.0, 600.0)
"""The first and the longest time that a refused job is in quarantine."""
LOOK_BACK_S = 1.0
"""Seconds between two requests that all workers look back in one queue."""


class SentClaim(msgspec.Struct, frozen=True):
    request: ClaimRequest
    before: float
    """When it was sent, in monotonic seconds."""
    probes: bool
    """Whether it looks for unknown priorities."""
    had_none: bool
    """Whether the worker had no job, and had counted all that ended."""
    released: int
    """How many waiting jobs this worker had let go."""
    told: int
    """How many wake-ups had come for which no claim had brought a job."""
    was_due: bool
    """Whether a job was known to be due."""
    polls: bool
    """Whether it looks for jobs that no wake-up tells of."""
    question: Question | None
    """The question of the maintenance that the claim asks."""
    answer: asyncio.Task[Claimed]


class Claimer(Service):
    """Keeps the executor's slots filled. A drain ends when a search of everything found nothing."""

    name = "claimer"

    def __init__(
        self,
        spec: WorkerSpec,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        executor: Executor,
        finisher: Finisher,
        lane_sweeper: LaneSweeper,
        wait_sweeper: WaitSweeper,
        asker: Asker,
        copy_guard: CopyGuard,
    ) -> None:
        super().__init__(bus, clock)
        self.claimed = 0
        self.failure: DatabaseUnavailable | None = None
        """In a drain: the outage of the database that ended it."""
        self.workers = 1
        """How many workers share a queue with this worker, itself included: they have one budget
        for looks. Written by the lease keeper."""
        self.paused: frozenset[str] = frozenset()
        """Its queues that were paused at the last claim that asked."""
        self._spec = spec
        self._config = config = spec.config
        self._link = link
        self._executor = executor
        self._finisher = finisher
        self._lane_sweeper = lane_sweeper
        self._wait_sweeper = wait_sweeper
        self._asker = asker
        self._copy_guard = copy_guard
        self._peer = spec.peer
        self._claimant = spec.make_claimant()
        self._leases_s = spec.list_leases_s()
        self._sent: SentClaim | None = None
        """The next claim, if it was sent before the last claim was handed over."""
        self.is_listening = False
        """Whether wake-ups arrive. Written by the listener."""
        self._is_idle = False
        """Whether the last claim left room, and no due job."""
        self._roomy: list[str] = []
        """The queues of which it found all due jobs while the slots of others were full."""
        self._answer: asyncio.Task[Claimed] | None = None
        """The answer of the last sent claim."""
        self._has_room = False
        """Whether room was made before that answer came."""
        self._is_awaited = False
        """Whether producers know that the worker waits."""
        self._leaving: set[str] = set()
        """Queues whose wake-ups it wants no more."""
        self._groups = executor.groups
        self._frontiers = Frontiers(queue for group in self._groups for queue in group.queues)
        for job_type in spec.types.values():
            self._frontiers.add(job_type.options.queue, job_type.options.priority)
        self._quarantine: Quarantine[int] = Quarantine(clock, *QUARANTINE_S)
        self._refusals = RefusalLog(bus, self.name, clock)
        self._has_held_up = False
        """Whether jobs waited for their lanes or limits since the last look for free places."""
        self._looked_back_at: dict[str, float] = {}
        self._pauses = BackOff(config.poll_least_s, config.poll_s)
        self._turns = 0
        self._told = 0
        """How many wake-ups have come for which no claim has brought a job."""
        self._probe_at = 0.0
        self._due_at = math.inf
        """When the next job is due, in monotonic seconds; not known once that time is past."""
        self._claimed_at = 0.0
        self._notify_at = 0.0
        self._ends_at: float | None = None
        if config.drain_for_s is not None:
            self._ends_at = self.clock.monotonic() + config.drain_for_s

    def list_awaited(self) -> list[str]:
        """Return the queues whose producers may be asked for wake-ups."""
        if self._is_stopping or self.clock.monotonic() < self._notify_at:
            return []
        return self._frontiers.queues if self._is_idle else self._roomy

    def wake(self) -> None:
        """Claim soon: there is room. An idle worker had room before; a drain may be over."""
        if self._answer is not None and not self._answer.done():
            self._has_room = True  # whether that matters is known once the answer is there
        elif self._wants_room():
            super().wake()
        elif not (self._is_awaited or self._config.drain):
            self._pauses.tries = 0
            super().wake_in(self._pauses.first_s * self.workers)

    def _wants_room(self) -> bool:
        return not self._is_idle or (self._config.drain and not self._executor.attempts)

    def wake_in(self, pause_s: float) -> None:
        """Claim in so many seconds, when a job that was put off is due."""
        self._due_at = min(self._due_at, self.clock.monotonic() + pause_s)
        super().wake_in(pause_s)

    def wake_for(self, queue: str) -> None:
        """Claim soon: a job may have become due in this queue."""
        if queue not in self._frontiers.queues:
            return
        for group in self._groups:
            if queue in group.queues:
                group.hasten_search()
        self._claim_again()

    def take_wake_up(self, queue: str) -> None:
        """Claim soon: only this worker was told of a job. Without room it passes the wake-up on."""
        self._told += 1
        for group in self._groups:
            if queue in group.queues and group.wanted_ordinary <= 0:
                self._leaving.add(queue)
        self.wake_for(queue)

    def on_flood(self) -> None:
        """Poll for a while, and stop the wake-ups, which cost more than they help."""
        self._notify_at = self.clock.monotonic() + FLOOD_S
        self._leaving.update(self._frontiers.queues)

    def note_poll(self, poll: str) -> None:
        """Rest after a look of a worker of this kind for jobs that no wake-up tells of."""
        if poll.partition(" ")[0] != self._peer.partition(" ")[0] or poll == self._peer:
            return
        self.workers = max(self.workers, 2)  # the next heartbeat says how many
        if self._is_idle and self._is_awaited:
            rest_s = self._config.listening_poll_s * random.uniform(*REST_SHARES)
            self._asker.rest(rest_s)
            rests_until = max(self._turn_at, self.clock.monotonic() + rest_s)
            self._turn_at = min(rests_until, self._claimed_at + REST_MAX_S)

    def note_listening(self, *, is_listening: bool, is_awaited: bool) -> None:
        """Note whether notifications arrive, and producers have been asked for them."""
        self.is_listening = is_listening
        before, self._is_awaited = self._is_awaited, is_awaited
        if self._is_awaited is not before:  # nobody tells of what was committed before
            self._told = max(1, self._told)
            self._claim_again()

    def _claim_again(self) -> None:
        self._pauses.tries = 0
        self._is_idle = False
        super().wake()

    def offer_room(self) -> tuple[ops.Claimant, Branches] | None:
        """Say where a claim would look now, for a flush that ends jobs of lanes; None: nowhere."""
        now = self.clock.monotonic()
        if not self._may_send(now):
            return None
        request = self._frontiers.make_request(self._groups, self._turns, now)
        if not request.groups:
            return None
        return self._claimant, request.branches

    def take_passed(self, claimed: Claimed, before: float) -> None:
        """Take the jobs that a flush claimed which was sent at `before`."""
        self._executor.take(self._expect(claimed, before))

    async def tick(self) -> float | None:
        sent, self._sent = self._sent, None
        if sent is None:
            now = self.clock.monotonic()
            if self._ends_at is not None and now >= self._ends_at:
                self.stop()
                return 0
            if self._finisher.away_since is not None:
                return self._share_outage(now - self._finisher.away_since)
            if self._finisher.unwritten >= UNWRITTEN_MAX:
                return self._config.poll_s
            if self._leaving:
                await self._pass_on()
            sent = self._send(now)
        if sent is None:
            return self._find_pause_without_slots()
        pause_s = await self._claim(sent)
        return 0 if self._has_room and self._wants_room() else pause_s

    def _share_outage(self, away_s: float) -> float:
        """Claim nothing while the finisher can write nothing. A drain waits for a while first."""
        if self._config.drain and away_s < AWAY_S:
            return self._config.poll_s
        raise DatabaseUnavailable(self._finisher.refusal or "no outcome can be written")

    def handle_outage(self, error: DatabaseUnavailable, back_off_s: float) -> float | None:
        """End a drain at the first failure: cron starts the next drain."""
        self._asker.reaper.note_outage(error)
        if self._config.drain:
            self.failure = error
            self.stop()
            return 0
        return super().handle_outage(error, back_off_s)

    async def close(self) -> None:
        """Take the last claim if it is on its way, let others be woken, close the connection."""
        try:
            if self._sent is not None:
                claimed = await self._sent.answer
                self._executor.take(self._expect(claimed, self._sent.before))
            if self._is_awaited:  # else wake-ups are unheard during its handlers' grace
                self._leaving.update(self._frontiers.queues)
                await self._pass_on()
        except DatabaseUnavailable:
            pass  # the claimed jobs come back with their leases
        finally:
            await self._link.close()

    def _send(self, now: float) -> SentClaim | None:
        """Send a claim of as many jobs as are wanted; None: no jobs are wanted."""
        polls, self._is_idle, self._roomy = self._is_idle, False, []
        self._turns += 1
        request = self._frontiers.make_request(self._groups, self._turns, now)
        if not request.groups:
            return None
        asker = self._asker
        tells = polls and self._is_awaited and self.workers > 1 and asker.is_well
        asks = tells or now >= asker.due_at
        question = asker.find_question(now, for_others=tells) if asks else None
        was_due = now >= self._due_at
        probes = now >= self._probe_at
        if probes:  # the answer says what is due
            self._probe_at, self._due_at = now + PROBE_S, math.inf
        self._wait_sweeper.workers = 1 if tells else self.workers
        operation = ops.claim(
            self._claimant,
            request.branches,
            self._frontiers.find_asked_since(request),
            self._frontiers.list_known(request) if probes else None,
            self._find_quarantined(),
            upkeep=None if question is None else question.text,
            poll=self._peer if tells else None,
        )
        self._claimed_at = now
        self._answer, self._has_room = _start(self._link.run(operation)), False
        return SentClaim(
            request,
            before=now,
            probes=probes,
            had_none=not self._executor.attempts and not self._finisher.has_uncounted,
            released=self._wait_sweeper.released,
            told=self._told,
            was_due=was_due,
            polls=polls,
            question=question,
            answer=self._answer,
        )

    async def _claim(self, sent: SentClaim) -> float | None:
        claimed = await sent.answer
        now = self.clock.monotonic()
        behind, is_full = self._learn(sent, claimed, now)
        fresh = self._expect(claimed, sent.before)
        told = self._count_unanswered(sent, len(fresh))
        if fresh and is_full and not behind and self._may_send(now):
            # Only now: the next claim depends on what this claim has brought.
            self._sent = self._send(now)
            await asyncio.sleep(0)  # before Python 3.12 a task begins in the next turn
        if fresh:
            self._executor.take(fresh)
        await self._note_paused(claimed, sent.request.queues)
        for queue, to in behind.items():
            if now - self._looked_back_at.get(queue, -LOOK_BACK_S) >= LOOK_BACK_S:
                self._looked_back_at[queue] = now
                await self._link.run(ops.look_back(queue, to))
        if fresh and is_full:
            await self._call_others(sent, told, now)
        if claimed.held_up:
            self._has_held_up = True
            self._lane_sweeper.hasten()
        if self._is_over(sent, claimed):
            known, types = self._frontiers.list_known(sent.request), self._claimant.types
            next_in_s = await self._link.run(ops.find_next_in_s(known, types, claimed.started))
            if next_in_s is None and not await self._find_more(sent.released):
                self.stop()
            return next_in_s or 0
        if self._sent is not None:
            self._pauses.tries = 0
            return 0
        due_in_s = self._find_due_in_s(sent, claimed, told, now)
        pause_s = await self._find_pause_s(sent, claimed, is_full=is_full)
        return min(pause_s, due_in_s, self._find_search_in_s(now))

    async def _note_paused(self, claimed: Claimed, searched: Collection[str]) -> None:
        """Note which queues are paused. A new pause may be a restored copy's."""
        if claimed.paused - self.paused:
            await self._copy_guard.tick()
        self.paused = claimed.paused | (self.paused - set(searched))

    def _learn(
        self, sent: SentClaim, claimed: Claimed, now: float
    ) -> tuple[dict[str, datetime], bool]:
        """Learn from a claim. Return where others should look back, by queue, and if it is full."""
        request = sent.request
        if sent.question is not None:
            self._asker.take(sent.question, claimed.news.upkeep)
        if claimed.news.next_in_s is not None:
            self._due_at = min(self._due_at, now + claimed.news.next_in_s)
        self._put_in_quarantine(claimed.refused)
        answers = request.sort(claimed.seen)
        self._note_searches(answers, claimed, now)
        timing = ClaimTiming(now, now - sent.before, claimed.started, self.workers)
        behind = self._frontiers.learn(request, answers, claimed, timing)
        return behind, any(answer.is_full for answer in answers)

    def _may_send(self, now: float) -> bool:
        is_late = self._ends_at is not None and now >= self._ends_at
        has_room = self._finisher.away_since is None and self._finisher.unwritten < UNWRITTEN_MAX
        return has_room and not (is_late or self._leaving or self._is_stopping)

    # What came back

    def _expect(self, claimed: Claimed, claimed_at: float) -> list[Attempt]:
        """Return the attempts of a claim, which the executor gets next."""
        if not claimed.jobs:
            return []
        fresh = make_attempts(claimed, self._spec.types, self._leases_s, claimed_at)
        self.claimed += len(fresh)
        self._executor.expect(fresh)
        return fresh

    def _put_in_quarantine(self, refused: Sequence[RefusedClaim]) -> None:
        """Leave out jobs that the database does not let this worker claim, and report them."""
        if not refused:
            return
        self._quarantine.release_accepted()
        for job in refused:
            self._quarantine.put(job.id)
        self._refusals.report({job.id: one_line(job.reason) for job in refused})

    def _find_quarantined(self) -> list[int] | None:
        """Return the jobs that are not tried again yet; None: there are too many."""
        if not self._quarantine.cases:
            return []
        waiting = self._quarantine.find_waiting()
        return waiting if len(waiting) < QUARANTINE_MAX else None

    # When to claim again

    def _note_searches(self, answers: Sequence[GroupAnswer], claimed: Claimed, now: float) -> None:
        """Note which groups need no search for urgent jobs for a while."""
        if not claimed.news.priorities:  # otherwise nothing was claimed
            for answer in answers:
                answer.asked.group.note_search(now, has_more=answer.may_leave_urgent)

    def _find_search_in_s(self, now: float) -> float:
        """Return in how many seconds some group is searched for urgent jobs alone."""
        urgent = (group for group in self._groups if group.wanted > 0 and not group.wanted_ordinary)
        return max(0.0, min((group.search_at for group in urgent), default=math.inf) - now)

    def _find_due_in_s(self, sent: SentClaim, claimed: Claimed, told: int, now: float) -> float:
        """Return in how many seconds a job is due, or the worker may ask when the next job is."""
        found = claimed.count()
        if sent.request.is_for_urgent:
            return math.inf
        if self._is_awaited and not (sent.probes or found):
            self._probe_at = 0.0  # perhaps a wake-up told of a job that is due a little later
            return 0.0
        due_at = self._due_at if self._due_at > now else self._probe_at
        if not sent.probes:  # the claim does not know what is due a little later than what it found
            due_at = min(due_at, now + PROBE_S * self.workers)
        if told > 0 and not found:  # perhaps a wake-up told of a job of a long transaction
            due_at = min(due_at, self._frontiers.find_ended_due_at(sent.request, claimed, now))
        # What was due may be of a paused queue, or of a type that no worker knows.
        return max(PROBE_S if sent.was_due and not found else 0.0, due_at - now)

    def _find_pause_without_slots(self) -> float:
        now = self.clock.monotonic()
        ends_in_s = math.inf if self._ends_at is None else max(0.0, self._ends_at - now)
        return min(ends_in_s, self._find_search_in_s(now))  # the executor wakes it for a free slot

    async def _find_pause_s(self, sent: SentClaim, claimed: Claimed, *, is_full: bool) -> float:
        request = sent.request
        has_news = bool(claimed.news.look_back or claimed.news.priorities)
        leaves_some = bool(claimed.refused or claimed.held_up)
        if claimed.jobs or leaves_some or has_news:
            self._pauses.tries = 0
            # A full claim is repeated at once; after one that reached the end nothing is due yet.
            if has_news or is_full:
                return 0
        elif not request.is_for_urgent:
            self._probe_at = 0.0
        if self._config.drain:
            self._is_idle = request.covers_all(self._groups) and not leaves_some
            if claimed.jobs or leaves_some:
                return self._pauses.first_s
            self._frontiers.search_everything()
            pause_s = self._pauses.next_s()
            return pause_s if self._executor.attempts else PROBE_S * self._finisher.has_uncounted
        if leaves_some or not request.covers_all(self._groups):
            if claimed.jobs or leaves_some:
                return self._pauses.first_s
            self._roomy = [q for group in request.groups if group.ordinary for q in group.queues]
            return self._config.poll_s
        self._is_idle = True
        if self._is_awaited:
            return self._config.listening_poll_s / (2 if self.workers > 1 else 1)
        if not claimed.jobs and await self._request_notify():
            self._is_idle = False
            return 0  # nobody tells of what was committed before
        return min(self._pauses.next_s() * self.workers, self._config.poll_s)

    def _is_over(self, sent: SentClaim, claimed: Claimed) -> bool:
        """Whether a drain is done: since its last job ended, a search of everything found none."""
        if not self._config.drain or not sent.probes or not sent.had_none:
            return False
        found = claimed.count() or claimed.news.look_back or claimed.news.priorities
        return not found and sent.request.covers_everything(self._frontiers.queues)

    async def _find_more(self, released: int) -> bool:
        """Return whether waiting jobs may run now, or more than `released` were let go since."""
        if self._has_held_up and await self._find_free_places():
            return True
        sweeper = self._wait_sweeper
        if sweeper.waiting and await sweeper.find_released():
            return True
        return sweeper.released > released

    async def _find_free_places(self) -> bool:
        """Return whether held-up jobs may run now for a reason that nobody has noticed."""
        self._has_held_up = False
        after: str | None = ""
        while after is not None:
            sweep = await self._link.run(ops.sweep_rooms(after, PORTION))
            if sweep.released:
                return True
            after = sweep.last_room
        return False

    async def _request_notify(self) -> bool:
        """Ask producers to wake this worker, once it waits longer; return whether it did."""
        if self._is_awaited or not self.is_listening or not self.list_awaited():
            return False
        if self._pauses.tries > 0:
            request = ops.request_notify(self._peer, self._frontiers.queues, NOTIFY_S)
            self._is_awaited = await self._link.run(request)
        return self._is_awaited

    async def _pass_on(self) -> None:
        """Ask for no more wake-ups of some queues, and let another worker look instead."""
        queues = sorted(self._leaving)
        self._leaving.clear()
        self._is_awaited = False
        most, self._told = max(1, self._told), 0
        # Where a locked row keeps the worker in, workers would wake each other on and on.
        if await self._link.run(ops.request_notify(self._peer, queues, 0.0)):
            await self._link.run(ops.wake_others(self._peer, queues, most))

    def _count_unanswered(self, sent: SentClaim, fresh: int) -> int:
        """Return how many wake-ups led to no job, and forget them."""
        told = self._told - fresh
        if fresh or sent.probes:  # otherwise it claims once more
            self._told -= sent.told
        return told

    async def _call_others(self, sent: SentClaim, told: int, now: float) -> None:
        """Wake others for jobs that this worker knows and has no room for now."""
        is_due_soon = sent.probes and now < self._due_at < now + self._config.listening_poll_s
        if self.workers > 1 and (sent.polls or (self._sent is None and (told > 0 or is_due_soon))):
            most = None if sent.polls else max(1, told)
            await self._link.run(ops.wake_others(self._peer, sent.request.queues, most))


def _start(work: Coroutine[Any, Any, Claimed]) -> asyncio.Task[Claimed]:
    """Begin to run `work`: at once, where Python can."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
        return asyncio.Task(work, loop=loop, name="claim", eager_start=True)
    return loop.create_task(work, name="claim")
