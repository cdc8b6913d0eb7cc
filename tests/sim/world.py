"""A world of one seed: workers, producers and persons beside a database, and what goes wrong."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any
from unittest import mock

import psycopg

import rota
from rota.errors import DatabaseUnavailable
from rota.observe.events import Bus, JobHandedBack, LeaseLost, WorkerStopped
from rota.worker.attempt import Attempt
from rota.worker.worker import Worker
from tests.sim.database import SimConnection, SimDatabase
from tests.sim.handlers import Handlers
from tests.sim.judge import LEASE_S, LOST_S, SLOTS, Judge
from tests.sim.loop import PROCESS, NothingToDo, OneThread, Process, VirtualLoop, WorkerClock
from tests.sim.people import People
from tests.sim.server import Call, Server, Session
from tests.sim.sql_worker import SqlWorker
from tests.worker.hand import make_spec

BEGINNING = datetime(2026, 1, 14, 9, tzinfo=UTC)
END_S = 900.0
"""Virtual seconds after which a world that has not ended never will."""


@dataclass(frozen=True)
class Mix:
    """How many of what, and how often what goes wrong: each a mean number in a world."""

    jobs: int = 300
    workers: int = 3
    over_s: float = 120.0
    """How long producers and faults go on."""
    kills: float = 0
    freezes: float = 0
    drops: float = 0
    """Connections that are lost, before or after the commit."""
    restarts: float = 0
    stalls: float = 0
    """Of the server: it answers nobody for a while."""
    steps: float = 0
    """Of the database's clock."""
    deploys: float = 0
    acts: float = 0
    """Of persons: cancel, retry, pause and resume."""
    holds: float = 0
    """Of transactions of the application's that enqueue and stay open for a while."""
    locks: float = 0
    """Of transactions that lock a row of Rota's for a while."""
    outages: float = 0
    """Of the endpoint that some jobs call."""
    refusals: float = 0
    """Rows that a trigger of the database lets nobody change."""
    copies: float = 0
    """Dumps of another database that are restored in the place of this one."""
    sql: int = 0
    """Workers that work with the functions of SQL alone."""
    has_old: bool = False
    """Whether every third worker is of a release that cannot read some payloads."""
    loses_notifications: float = 0.0
    """The share of them that are lost, late or doubled."""
    fast: bool = False
    """Whether the clock of one worker runs 3 % fast."""


CALM = Mix()
IDLE = Mix(
    jobs=60, holds=6, locks=5, deploys=1, acts=4, outages=1, refusals=1, sql=1, has_old=True,
)  # fmt: skip
"""There is always room: what is due begins at once."""
BUSY = Mix(
    acts=10, holds=8, locks=4, deploys=1, outages=2, refusals=2, copies=1, sql=1, has_old=True,
    loses_notifications=0.3,
)  # fmt: skip
"""Nothing of Rota's fails."""
STORM = Mix(
    kills=5,
    freezes=4,
    drops=8,
    restarts=1,
    stalls=1,
    deploys=1,
    acts=10,
    holds=4,
    locks=2,
    outages=2,
    refusals=1,
    sql=1,
    has_old=True,
    loses_notifications=0.3,
    fast=True,
)
STEPS = Mix(kills=3, freezes=2, drops=3, steps=3, acts=5, outages=1)
MIXES = {"calm": CALM, "idle": IDLE, "busy": BUSY, "storm": STORM, "steps": STEPS}


@dataclass
class Story:
    """What happened in a world."""

    seed: int
    mix: Mix
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    """Virtual seconds, who, what."""
    faults: list[str] = field(default_factory=list)
    """What the judge found wrong."""
    statements: int = 0
    claims: int = 0
    lasted_s: float = 0.0

    @property
    def hash(self) -> str:
        """The same for the same seed."""
        text = "\n".join(f"{at:.6f} {who} {what}" for at, who, what in self.lines)
        return sha256(text.encode()).hexdigest()[:16]

    def table(self) -> str:
        lines = [f"{at:10.3f}  {who:<10} {what}" for at, who, what in self.lines]
        return "\n".join([*lines, *(f"WRONG: {fault}" for fault in self.faults)])


class World:
    """One world."""

    def __init__(self, server: Server, seed: int, mix: Mix) -> None:
        self.server = server
        self.mix = mix
        self.story = Story(seed, mix)
        self.draw = random.Random(seed)
        self.loop = VirtualLoop()
        self.judge = Judge(lambda: self.loop.now)
        self.connections: list[SimConnection] = []
        self._ears: defaultdict[str, list[SimConnection]] = defaultdict(list)
        self._skew_s = self._skew_s_max = self._stepped_s = 0.0
        self._down_until = self._stalled_until = 0.0
        self._endpoint_down_until = 0.0
        self._is_troubled = True
        self._workers: dict[Process, Worker | SqlWorker] = {}
        self._running: dict[Process, asyncio.Task[Any]] = {}
        self._number = 0
        self._neutral = copy_context()

    # What processes ask of it

    def tell(self, who: object, what: str) -> None:
        self.story.lines.append((self.loop.now, str(who), what))

    def now(self) -> datetime:
        """The clock of the database."""
        return BEGINNING + timedelta(seconds=self.loop.now + self._skew_s)

    def refuse_if_down(self) -> None:
        if self.loop.now < self._down_until:
            raise psycopg.OperationalError("the server is starting up")

    def is_endpoint_down(self) -> bool:
        return self.loop.now < self._endpoint_down_until

    def make_app(self, process: Process, jobs: rota.Jobs) -> rota.App:
        """The App of a process."""
        app = rota.App(self.server.url, jobs=[jobs], release="r1")
        vars(app)["_opened"] = SimDatabase(self, process)
        return app

    async def travel(self, connection: SimConnection) -> None:
        """Take as long as a message takes, to a server that answers."""
        await asyncio.sleep(self.draw.expovariate(1 / 0.002))
        await asyncio.sleep(max(0.0, self._stalled_until - self.loop.now))

    def listen(self, channel: str, connection: SimConnection) -> None:
        self._ears[channel].append(connection)
        self.server.listen(channel)

    def apart(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let something happen outside of all processes."""
        return self.loop.create_task(coroutine, context=self._neutral.copy())

    async def execute(
        self, connection: SimConnection, session: Session, text: bytes, call: Call
    ) -> list[Any]:
        await self.travel(connection)
        if self._lost(connection, before=True):
            raise psycopg.OperationalError("the connection was lost before the statement")
        self.refuse_if_down()
        who, name = f"{connection.process}.{connection.role}", _name(text)
        self.story.claims += b"job_claim(" in text
        session.has_notified = session.has_notified or b"pg_notify(" in text
        try:
            answer: list[Any] = await self.server.run(
                session, self.now().isoformat(), call, connection.waits_s
            )
        except psycopg.Error as error:
            self.tell(who, f"{name} -> {type(error).__name__}")
            if isinstance(error, psycopg.errors.DeadlockDetected):
                self.story.faults.append(f"{who} deadlocks with another at {self.loop.now:.3f}")
            raise
        finally:
            if session.has_notified and session.is_over:
                session.has_notified = False
                self._deliver()
        self.tell(who, f"{name} -> {len(answer)}")
        await self.travel(connection)
        if self._lost(connection, before=False):
            raise psycopg.OperationalError("the connection was lost after the statement")
        return answer

    def _lost(self, connection: SimConnection, *, before: bool) -> bool:
        """Whether a connection is lost now."""
        rate = self.mix.drops / 4000 if self._is_troubled else 0.0
        if connection.is_broken or self.draw.random() >= rate:
            return False
        self.tell(connection.process, f"loses {connection.role}, {'before' if before else 'after'}")
        connection.cut()
        return True

    def _deliver(self) -> None:
        for channel, payload in self.server.hear():
            for connection in self._ears[channel]:
                if connection.is_broken or connection.process.is_dead:
                    continue
                times, late_s = 1, self.draw.expovariate(1 / 0.002)
                share = self.mix.loses_notifications if self._is_troubled else 0.0
                if self.draw.random() < share:
                    times, late_s = self.draw.choice([(0, 0.0), (1, 5.0), (2, 0.1)])
                for _ in range(times):
                    self.loop.call_later(
                        late_s, connection.hear, channel, payload, context=self._neutral
                    )

    # The world

    def run(self) -> Story:
        """Let it happen."""
        self.server.clean()
        state = random.getstate()
        random.seed(self.story.seed)
        with (
            mock.patch.object(logging.getLogger("rota"), "disabled", True),
            mock.patch("rota.worker.worker.LoopThread", OneThread),
            # Sets of attempts have the same order in each run.
            mock.patch.object(
                Attempt, "__hash__", lambda attempt: hash((attempt.job.id, attempt.job.claims))
            ),
        ):
            main = self.loop.create_task(self._live())
            try:
                self.loop.run_until_complete(main)
            except NothingToDo:
                self.story.faults.append("everything waits for what never comes")
            finally:
                self.story.faults += self.judge.faults
                self.story.statements = self.server.statements
                self.story.lasted_s = self.loop.now
                del main
                self._end()
                self._forget()
                random.setstate(state)
        return self.story

    def _end(self) -> None:
        for process in self._workers:
            process.is_dead = True
        self.loop.set_exception_handler(lambda *_: None)  # nobody hears the dead
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for connection in list(self.connections):
            connection.cut()
        self.server.release()
        self.loop.close()

    def _forget(self) -> None:
        story = self.story
        # The coroutines of the dead never end: what they say when they are collected is no news.
        with mock.patch("sys.unraisablehook"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            vars(self).clear()
            gc.collect()
        self.story = story

    async def _live(self) -> None:
        mix = self.mix
        self._start_workers()
        if mix.fast:
            next(iter(self._workers)).speed = 1.03
        self._people = People(self)
        await self._people.clear_queue()  # there is a row that may be locked
        happening = []
        for at, happen in sorted(self._plan(), key=lambda event: event[0]):
            await asyncio.sleep(max(0.0, at - self.loop.now))
            happening.append(self.apart(happen()))
        await asyncio.gather(*happening)
        self._is_troubled = False
        await self._mend()
        await self._wait_for_the_end()

    def _plan(self) -> Iterator[tuple[float, Callable[[], Coroutine[Any, Any, None]]]]:
        mix, draw = self.mix, self.draw
        for _ in range(mix.jobs // 5):
            yield draw.uniform(0, mix.over_s), self._people.produce
        for _ in range(mix.jobs // 60):
            yield draw.uniform(0, mix.over_s), self._people.produce_batch
        for count, happen in (
            (mix.kills, self._kill),
            (mix.freezes, self._freeze),
            (mix.restarts, self._restart),
            (mix.stalls, self._stall),
            (mix.steps, self._step),
            (mix.deploys, self._deploy),
            (mix.acts, self._people.act),
            (mix.holds, self._people.hold),
            (mix.locks, self._people.lock),
            (mix.outages, self._lose_endpoint),
            (mix.refusals, self._refuse),
            (mix.copies, self._copy),
        ):
            for _ in range(round(draw.uniform(0.5, 1.5) * count)):
                yield draw.uniform(0, mix.over_s), happen

    # What goes wrong

    def _start_workers(self) -> None:
        for number in range(self.mix.workers + self.mix.sql):
            self._start_worker("sql" if number < self.mix.sql else "w")

    def _start_worker(self, kind: str = "w") -> None:
        self._number += 1
        process = Process(f"{kind}{self._number}")
        context = copy_context()
        context.run(PROCESS.set, process)
        if self.mix.has_old and self._number % 3 == 2:
            process.release = "old"
        worker = SqlWorker(self, process) if kind == "sql" else self._make_worker(process)
        self._workers[process] = worker
        self.tell(process, "starts")
        self.judge.note_start()
        task = self.loop.create_task(worker.run(), context=context)
        task.add_done_callback(partial(self._note_end, process), context=self._neutral)
        self._running[process] = task

    def _make_worker(self, process: Process) -> Worker:
        spec = make_spec(
            Handlers(self, process).jobs,
            release=process.release,
            name=process.name,
            lease_s=LEASE_S,
            slots=SLOTS,
        )
        bus = Bus()
        bus.on(LeaseLost, lambda lost: self.judge.note_lost(lost.job, lost.claim))
        bus.on(JobHandedBack, partial(self._note_hand_back, process))
        bus.on(WorkerStopped, partial(self._note_stop, process))
        return Worker(SimDatabase(self, process), spec, bus, WorkerClock(self.loop, process))

    def _note_hand_back(self, process: Process, back: JobHandedBack) -> None:
        if back.why.startswith("its payload does not fit"):
            self.judge.note_unread(back.job, process.release)

    def _note_stop(self, process: Process, stopped: WorkerStopped) -> None:
        self.judge.look_at_a_stop(process.name, stopped.unwritten, self.server)

    def _note_end(self, process: Process, task: asyncio.Task[Any]) -> None:
        """Start another in place of one that found no database."""
        if process.is_dead or task.cancelled():
            return
        process.is_dead = True
        error = task.exception()
        self.tell(process, f"ends{'' if error is None else f' with {error!r}'}")
        if isinstance(error, DatabaseUnavailable):
            self.loop.call_later(5, self._start_worker)
        elif error is not None:
            self.story.faults.append(f"{process} ended with {error!r}")

    def _pick(self) -> Process | None:
        alive = [process for process in self._workers if not process.is_dead]
        return self.draw.choice(alive) if alive else None

    async def _kill(self) -> None:
        process = self._pick()
        if process is None:
            return
        self.tell(process, "is killed")
        process.is_dead = True
        self.judge.note_death(process.name)
        for connection in [opened for opened in self.connections if opened.process is process]:
            connection.cut()
        kind = "sql" if process.is_sql else "w"
        after_s = self.draw.uniform(0.5, 10)
        self.loop.call_later(after_s, self._start_worker, kind, context=self._neutral)

    async def _freeze(self) -> None:
        process = self._pick()
        if process is not None:
            for_s = self.draw.uniform(1, 2.5 * LEASE_S)
            self.tell(process, f"freezes for {for_s:.1f} s")
            since = max(self.loop.now, process.frozen_until)  # it may be frozen already
            process.frozen_until = max(since, self.loop.now + for_s)
            stands = self.draw.random() < 0.3
            self.judge.note_freeze(process.name, process.frozen_until, knows=not stands)
            if stands:
                self.tell(process, "so does its clock")
                process.stood_s += process.frozen_until - since

    async def _restart(self) -> None:
        self._down_until = self.loop.now + self.draw.uniform(0.2, 20)
        self.tell("server", f"is down until {self._down_until:.1f}")
        self.judge.note_outage(self._down_until)
        up_at = self.now() + timedelta(seconds=self._down_until - self.loop.now)
        self.server.started = up_at.isoformat()
        for connection in list(self.connections):
            connection.cut()

    async def _stall(self) -> None:
        self._stalled_until = self.loop.now + self.draw.uniform(0.5, 30)
        self.tell("server", f"stands still until {self._stalled_until:.1f}")
        self.judge.note_outage(self._stalled_until)

    async def _step(self) -> None:
        """Set the clock, perhaps by as much as the last time: a machine is paused again."""
        by_s = self.draw.choice([-1, 1]) * 10 ** self.draw.uniform(0, 3.55)
        if self._stepped_s and self.draw.random() < 0.4:
            by_s = self._stepped_s
        self._stepped_s = by_s
        self._set_clock(by_s)

    def _set_clock(self, by_s: float) -> None:
        self.tell("server", f"its clock steps by {by_s:+.0f} s")
        self._skew_s += by_s
        self._skew_s_max = max(self._skew_s_max, self._skew_s)
        self.judge.note_step_of_clock()

    async def _lose_endpoint(self) -> None:
        until = self.loop.now + self.draw.uniform(30, 110)
        self._endpoint_down_until = max(self._endpoint_down_until, until)
        self.tell("endpoint", f"is down until {self._endpoint_down_until:.1f}")
        self.judge.note_endpoint_down(self._endpoint_down_until)

    async def _refuse(self) -> None:
        if waiting := self.judge.list_waiting() or sorted(self.judge.enqueued):
            job = self.draw.choice(waiting)
            self.tell("database", f"refuses each change of {job}")
            self.judge.note_touched(job)
            self.server.refuse(job)

    async def _copy(self) -> None:
        """Make it the dump of another database for a while: nothing may be claimed."""
        asked = "select id, claims from rota.job where status = 'running' or %s"
        before = dict(self.server.query(asked, True))
        for_s = self.draw.uniform(1, 20)
        self.tell("database", f"is a copy for {for_s:.1f} s")
        self.judge.note_pause(self.loop.now + for_s + 1)
        self.server.be_copy(is_copy=True)
        await asyncio.sleep(for_s)
        for job, claims in self.server.query(asked, False):
            if claims > before.get(job, 0):
                self.story.faults.append(f"job {job} is claimed in a copy at {self.loop.now:.3f}")
        self.server.be_copy(is_copy=False)

    async def _deploy(self) -> None:
        for process, worker in list(self._workers.items()):
            if not process.is_dead:
                self._stop(process, worker)
        self._start_workers()

    def _stop(self, process: Process, worker: Worker | SqlWorker) -> None:
        self.tell(process, "is told to stop")
        self.loop.call_soon(worker.stop, context=self._neutral)

    async def _mend(self) -> None:
        """End all faults: from here on everything must come to an end."""
        self.tell("world", "is well")
        await asyncio.sleep(max(0.0, self._down_until - self.loop.now))
        self.server.refuse(None)
        await self._people.clear_queue()
        for process in self._workers:
            if not process.stood_s:
                process.frozen_until = min(process.frozen_until, self.loop.now)
        self.judge.note_well()
        while not any(
            process.release == "r1" and not process.is_sql
            for process in self._workers
            if not process.is_dead
        ):
            self._start_worker()

    async def _wait_for_the_end(self) -> None:
        until = self.loop.now + END_S
        left = "select count(*) from rota.job where status not in ('dead', 'cancelled')"
        if any(process.is_dead for process in self._workers):
            await asyncio.sleep(LOST_S)
            self.judge.look_at_the_dead(self.server)
        if self._skew_s < self._skew_s_max:  # else what was put off waits for hours
            self._set_clock(self._skew_s_max - self._skew_s)
        while self.loop.now < until and not self.judge.faults:
            await asyncio.sleep(5)
            await self._people.release_all()
            if self.server.query(left) == [(0,)]:
                break
        for process, worker in self._workers.items():
            if process.is_sql:
                self._stop(process, worker)
        await asyncio.sleep(1)
        self.judge.look_at_claims(self.story.claims, self.mix.workers * self.loop.now)
        before = self.server.statements
        await asyncio.sleep(40)  # what is swept has been swept
        living = [process for process in self._workers if not (process.is_dead or process.is_sql)]
        releases = len({process.release for process in living})
        asked = (self.server.statements - before) / 40
        self.judge.look_at_rest(asked, len(living), releases)
        for process in living:
            self._stop(process, self._workers[process])
        ended = [self._running[process] for process in living]
        await asyncio.wait(ended, timeout=60)
        for process, task in zip(living, ended, strict=True):
            if not task.done():
                self.story.faults.append(f"{process} does not stop")
        self.judge.look_at_the_end(self.server, map(str, living))


def _name(text: bytes) -> str:
    """The first words of a statement, for the story."""
    body = b" ".join(line for line in text.split(b"\n") if not line.startswith(b"--"))
    return body.split(b"(")[0].decode()[:60].strip()
