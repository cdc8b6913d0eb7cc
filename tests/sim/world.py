"""A world of one seed: workers, producers and persons beside a database, and what goes wrong."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any
from unittest import mock

import psycopg

import rota
from rota.errors import DatabaseUnavailable, RotaError
from rota.observe.events import Bus
from rota.worker.attempt import Attempt
from rota.worker.worker import Worker
from tests.sim.database import SimConnection, SimDatabase
from tests.sim.handlers import Handlers
from tests.sim.judge import Judge
from tests.sim.kinds import DRAWN
from tests.sim.loop import PROCESS, NothingToDo, OneThread, Process, VirtualLoop, WorkerClock
from tests.sim.server import Call, Server, Session
from tests.worker.hand import make_spec

BEGINNING = datetime(2026, 1, 14, 9, tzinfo=UTC)
LEASE_S = 30.0
END_S = 4 * 3600.0
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
    steps: float = 0
    """Of the database's clock."""
    deploys: float = 0
    acts: float = 0
    """Of persons: cancel, retry, pause and resume."""
    outages: float = 0
    """Of the endpoint that some jobs call."""
    refusals: float = 0
    """Rows that a trigger of the database lets nobody change."""
    has_old: bool = False
    """Whether every third worker is of a release that cannot read some payloads."""
    loses_notifications: float = 0.0
    """The share of them that are lost, late or doubled."""
    fast: bool = False
    """Whether the clock of one worker runs 3 % fast."""


CALM = Mix()
BUSY = Mix(acts=10, outages=2, refusals=2, has_old=True, loses_notifications=0.3)
"""Nothing of Rota's fails."""
STORM = Mix(
    kills=5,
    freezes=4,
    drops=8,
    restarts=1,
    deploys=1,
    acts=10,
    outages=1,
    refusals=1,
    has_old=True,
    loses_notifications=0.3,
    fast=True,
)
STEPS = Mix(kills=3, freezes=2, drops=3, steps=3, acts=5, outages=1)
MIXES = {"calm": CALM, "busy": BUSY, "storm": STORM, "steps": STEPS}


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
    lasted_s: float = 0.0

    @property
    def hash(self) -> str:
        """The same for the same seed."""
        text = "\n".join(f"{at:.6f} {who} {what}" for at, who, what in self.lines)
        return sha256(text.encode()).hexdigest()[:16]

    def table(self) -> str:
        lines = [f"{at:10.3f}  {who:<10} {what}" for at, who, what in self.lines]
        return "\n".join([*lines, *(f"WRONG: {one}" for one in self.faults)])


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
        self._skew_s = 0.0
        self._down_until = 0.0
        self._endpoint_down_until = 0.0
        self._is_troubled = True
        self._workers: dict[Process, Worker] = {}
        self._running: dict[Process, asyncio.Task[Any]] = {}
        self._number = self._batches = 0
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
        """Take as long as a message takes."""
        await asyncio.sleep(self.draw.expovariate(1 / 0.002))

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
        session.has_notified = session.has_notified or b"pg_notify(" in text
        try:
            answer: list[Any] = await self.server.run(session, self.now().isoformat(), call)
        except psycopg.Error as error:
            self.tell(who, f"{name} -> {type(error).__name__}")
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
            mock.patch.object(Attempt, "__hash__", lambda one: hash((one.job.id, one.job.claims))),
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
        for _ in range(mix.workers):
            self._start_worker()
        if mix.fast:
            next(iter(self._workers)).speed = 1.03
        producer = Handlers(self, Process("producer"))
        self.app, self.types = producer.app, producer.jobs.types
        happenings = sorted(self._plan(), key=lambda one: one[0])
        for at, happen in happenings:
            await asyncio.sleep(max(0.0, at - self.loop.now))
            await happen()
        self._is_troubled = False
        await self._mend()
        await self._wait_for_the_end()

    def _plan(self) -> Iterator[tuple[float, Callable[[], Coroutine[Any, Any, None]]]]:
        mix, draw = self.mix, self.draw
        for _ in range(mix.jobs // 5):
            yield draw.uniform(0, mix.over_s), self._produce
        for _ in range(mix.jobs // 60):
            yield draw.uniform(0, mix.over_s), self._produce_batch
        for count, happen in (
            (mix.kills, self._kill),
            (mix.freezes, self._freeze),
            (mix.restarts, self._restart),
            (mix.steps, self._step),
            (mix.deploys, self._deploy),
            (mix.acts, self._act),
            (mix.outages, self._lose_endpoint),
            (mix.refusals, self._refuse),
        ):
            for _ in range(round(draw.uniform(0.5, 1.5) * count)):
                yield draw.uniform(0, mix.over_s), happen

    # Producers and persons

    async def _produce(self) -> None:
        draw = self.draw
        jobs: list[Any] = []
        rows: list[str | None] = []
        for kind in draw.choices(list(DRAWN), list(DRAWN.values()), k=5):
            options: dict[str, Any] = {}
            if kind in ("lane", "row"):
                options["group_key"] = kind + draw.choice("abc")
            if kind == "keyed":
                options["key"] = draw.choice("klmnopq")
            if draw.random() < 0.2:
                options["delay"] = timedelta(seconds=draw.uniform(0, 30))
            jobs.append(self.types[kind].using(**options).new(n=draw.randrange(1000)))
            rows.append(options["group_key"] if kind == "row" and "delay" not in options else None)
        with suppress(RotaError):
            made = await self.app.aenqueue_many(jobs)
            self.tell("producer", f"enqueues {[one.id for one in made if one.created]}")
            for one, row in zip(made, rows, strict=True):
                if one.created:
                    self.judge.note_enqueued(one.id, row)

    async def _produce_batch(self) -> None:
        self._batches += 1
        number = self._batches
        members = [self.types["plain"].new(n=n) for n in range(self.draw.randrange(1, 5))]
        with suppress(RotaError):
            made = await self.app.abatch(members, then=self.types["after"].new(n=number))
            ids = [one.id for one in made.jobs]
            self.tell("producer", f"makes batch {number} of {ids}")
            self.judge.note_batch(number, ids)

    async def _act(self) -> None:
        ids = sorted(self.judge.enqueued)
        if not ids:
            return
        job, act = self.draw.choice(ids), self.draw.choice(["cancel", "retry", "pause"])
        self.tell("person", f"{act} {job}")
        with suppress(RotaError):
            if act != "pause":
                self.judge.note_touched(job)
            if act == "cancel":
                await self.app.acancel(job, by="person")
            elif act == "retry":
                await self.app.aretry(job, by="person")
            else:
                await self.app.queues.apause("default", by="person")
                await asyncio.sleep(2)
                await self.app.queues.aresume("default", by="person")

    # What goes wrong

    def _start_worker(self) -> None:
        self._number += 1
        process = Process(f"w{self._number}")
        context = copy_context()
        context.run(PROCESS.set, process)
        if self.mix.has_old and self._number % 3 == 2:
            process.release = "old"
        spec = make_spec(
            Handlers(self, process).jobs,
            release=process.release,
            name=process.name,
            lease_s=LEASE_S,
            slots=6,
        )
        worker = Worker(SimDatabase(self, process), spec, Bus(), WorkerClock(self.loop, process))
        self._workers[process] = worker
        self.tell(process, "starts")
        task = self.loop.create_task(worker.run(), context=context)
        task.add_done_callback(partial(self._note_end, process), context=self._neutral)
        self._running[process] = task

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
        alive = [one for one in self._workers if not one.is_dead]
        return self.draw.choice(alive) if alive else None

    async def _kill(self) -> None:
        process = self._pick()
        if process is None:
            return
        self.tell(process, "is killed")
        process.is_dead = True
        self.judge.note_death(process.name)
        for connection in [one for one in self.connections if one.process is process]:
            connection.cut()
        self.loop.call_later(self.draw.uniform(0.5, 10), self._start_worker, context=self._neutral)

    async def _freeze(self) -> None:
        process = self._pick()
        if process is not None:
            for_s = self.draw.uniform(1, 2.5 * LEASE_S)
            self.tell(process, f"freezes for {for_s:.1f} s")
            process.frozen_until = self.loop.now + for_s
            self.judge.note_freeze(process.name, self.loop.now + for_s)

    async def _restart(self) -> None:
        self._down_until = self.loop.now + self.draw.uniform(0.2, 20)
        self.tell("server", f"is down until {self._down_until:.1f}")
        self.judge.note_outage(self._down_until)
        up_at = self.now() + timedelta(seconds=self._down_until - self.loop.now)
        self.server.started = up_at.isoformat()
        for connection in list(self.connections):
            connection.cut()

    async def _step(self) -> None:
        by_s = self.draw.choice([-1, 1]) * 10 ** self.draw.uniform(0, 3.55)
        self.tell("server", f"its clock steps by {by_s:+.0f} s")
        self._skew_s += by_s
        self.judge.note_step_of_clock()

    async def _lose_endpoint(self) -> None:
        self._endpoint_down_until = self.loop.now + self.draw.uniform(10, 60)
        self.tell("endpoint", f"is down until {self._endpoint_down_until:.1f}")
        self.judge.note_endpoint_down(self._endpoint_down_until)

    async def _refuse(self) -> None:
        if self.judge.enqueued:
            job = self.draw.choice(sorted(self.judge.enqueued))
            self.tell("database", f"refuses each change of {job}")
            self.judge.note_trouble()
            self.judge.note_touched(job)
            self.server.refuse(job)

    async def _deploy(self) -> None:
        for process, worker in list(self._workers.items()):
            if not process.is_dead:
                self.tell(process, "is told to stop")
                self.loop.call_soon(worker.stop)
        for _ in range(self.mix.workers):
            self._start_worker()

    async def _mend(self) -> None:
        """End all faults: from here on everything must come to an end."""
        self.tell("world", "is well")
        await asyncio.sleep(max(0.0, self._down_until - self.loop.now))
        self.server.refuse(None)
        await self.app.queues.aresume("default", by="person")
        for process in self._workers:
            process.frozen_until = min(process.frozen_until, self.loop.now)
        self.judge.note_well()
        while not any(one.release == "r1" for one in self._workers if not one.is_dead):
            self._start_worker()

    async def _wait_for_the_end(self) -> None:
        until = self.loop.now + END_S
        left = "select count(*) from rota.job where status not in ('dead', 'cancelled')"
        while self.loop.now < until:
            await asyncio.sleep(5)
            if self.server.query(left) == [(0,)]:
                break
        await asyncio.sleep(40)  # what is swept has been swept
        living = [one for one in self._workers if not one.is_dead]
        for process in living:
            self.loop.call_soon(self._workers[process].stop, context=self._neutral)
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
