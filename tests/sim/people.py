"""Producers and persons of a simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from rota.errors import DatabaseUnavailable, RotaError
from rota.store.errors import ServerTrouble, StoreError
from tests.sim.handlers import Handlers
from tests.sim.judge import BURST, STARTS, Made
from tests.sim.kinds import DRAWN, group_of, key_of
from tests.sim.loop import Process

if TYPE_CHECKING:
    from tests.sim.world import World

ACTS = ("cancel", "retry", "pause", "delete", "release", "cap", "limit")
LOCKS = {
    "job": "select id from rota.job where status in ('queued', 'failed', 'running') "
    "order by random() limit 1 for update skip locked",
    "queue": "select 0 from rota.queue for update skip locked",
}
"""What a transaction of the application's locks, and nothing of Rota's may wait for."""
DEAD = "select id, job_type from rota.job where status = 'dead' order by id"


class _RolledBack(Exception):
    """An application thinks better of it."""


class People:
    """Those who use Rota."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._draw = world.draw
        self._judge = world.judge
        self._batches = 0
        self._changing = asyncio.Lock()
        producer = Handlers(world, Process("producer"))
        self._app, self._types = producer.app, producer.jobs.types

    def _make_jobs(self) -> tuple[list[Any], list[Made]]:
        draw, now = self._draw, self._world.loop.now
        jobs, known = [], []
        for kind in draw.choices(list(DRAWN), list(DRAWN.values()), k=5):
            n = draw.randrange(1000)
            options: dict[str, Any] = {"group_key": group_of(kind, n), "key": key_of(kind, n)}
            delay_s = 0.0
            if draw.random() < 0.2:
                delay_s = draw.uniform(0, 30)
                options["delay"] = timedelta(seconds=delay_s)
            elif kind not in ("row", "late") and draw.random() < 0.05:
                options["run_at"] = self._world.now() - timedelta(hours=1)  # far behind the others
            if kind == "plain" and draw.random() < 0.2:
                options["priority"] = draw.randrange(-3, 3)
            given = {name: value for name, value in options.items() if value is not None}
            jobs.append(self._types[kind].using(**given).new(n=n))
            known.append(Made(kind, n, now + delay_s, is_delayed=delay_s > 0))
        return jobs, known

    async def produce(self) -> None:
        """Enqueue some jobs."""
        jobs, known = self._make_jobs()
        asked = self._world.loop.now
        with self._may_fail():
            if self._draw.random() < 0.7:
                self._note(await self._app.aenqueue_many(jobs), known, asked)
            else:
                self._note([await self._app.aenqueue(jobs[0])], known[:1], asked)

    @contextmanager
    def _may_fail(self) -> Iterator[None]:
        """Let an enqueue fail only if the database is away, or refuses what it would replace."""
        try:
            yield
        except (DatabaseUnavailable, ServerTrouble, _RolledBack):
            pass
        except (RotaError, StoreError, psycopg.Error) as error:
            if "is refused" not in str(error) and not isinstance(error, psycopg.OperationalError):
                self._world.story.faults.append(f"an enqueue fails: {error!r}")

    def _note(self, enqueued: list[Any], known: list[Made], asked: float) -> None:
        self._world.tell("producer", f"enqueues {[job.id for job in enqueued if job.created]}")
        for job, made in zip(enqueued, known, strict=True):
            if job.created:
                self._judge.note_enqueued(job.id, made)
            else:
                is_replaced = job.change == "replaced"
                self._judge.note_met(job.id, made, asked, is_replaced=is_replaced)

    async def hold(self) -> None:
        """Enqueue in a transaction of the application's, which ends a while later."""
        with self._may_fail():
            connection = await vars(self._app)["_opened"].connect("app")
            try:
                async with connection.driver().transaction():
                    jobs, known = self._make_jobs()
                    asked = self._world.loop.now
                    enqueued = await self._app.aenqueue_many(jobs, connection=connection)
                    joined = [
                        job.id
                        for job, made in zip(enqueued, known, strict=True)
                        if not job.created and made.kind == "pending"
                    ]
                    for id_ in joined:
                        self._judge.note_joined_by(id_, 1)
                    self._world.tell("producer", f"holds {joined}")
                    await asyncio.sleep(self._draw.uniform(0, 20))
                    for id_ in joined:
                        self._judge.note_joined_by(id_, -1)
                    if self._draw.random() < 0.2:
                        raise _RolledBack
                # They count from the commit on, and others of their groups may be ahead of them.
                self._note(enqueued, [replace(made, is_delayed=True) for made in known], asked)
            finally:
                await connection.close()

    async def lock(self) -> None:
        """Lock a row for up to 40 s, in a transaction of the application's."""
        with suppress(psycopg.Error):
            connection = await vars(self._app)["_opened"].connect("app")
            try:
                async with connection.driver().transaction():
                    what = self._draw.choice(list(LOCKS))
                    locked = await connection.driver().run(LOCKS[what].encode(), {})
                    self._world.tell("application", f"locks {what} {locked}")
                    for (id_,) in locked:
                        self._judge.note_touched(int(id_))
                    await asyncio.sleep(self._draw.uniform(0, 40))
            finally:
                await connection.close()

    async def produce_batch(self) -> None:
        """Enqueue a batch with what follows it."""
        number = self._batches = self._batches + 1
        kinds = self._draw.choices(("plain", "child"), k=self._draw.randrange(1, 5))
        members = [self._types[kind].new(n=n) for n, kind in enumerate(kinds)]
        with self._may_fail():
            made = await self._app.abatch(members, then=self._types["after"].new(n=number))
            due = self._world.loop.now
            known = {
                job.id: Made(kind, n, due, is_delayed=False)
                for n, (job, kind) in enumerate(zip(made.jobs, kinds, strict=True))
            }
            self._world.tell("producer", f"makes batch {number} of {list(known)}")
            self._judge.note_batch(number, known)

    async def act(self) -> None:
        """A person does one of the things that persons do."""
        if ids := sorted(self._judge.enqueued):
            job, act = self._draw.choice(ids), self._draw.choice(ACTS)
            self._world.tell("person", f"{act} {job}")
            with suppress(RotaError, psycopg.Error):
                await getattr(self, f"_{act}")(job)

    async def _cancel(self, job: int) -> None:
        self._judge.note_touched(job)
        await self._app.acancel(job, by="person")
        self._judge.note_cancelled(job)

    async def _retry(self, job: int) -> None:
        self._judge.note_retried(job)
        await self._app.aretry(job, by="person")

    async def _pause(self, job: int) -> None:
        """Pause the queue, and resume it, or leave that to the pause."""
        self._judge.note_pause(self._world.loop.now + 2 + 1)
        until = timedelta(seconds=2) if self._draw.random() < 0.5 else None
        await self._app.queues.apause("default", duration=until, by="person")
        if until is None:
            await asyncio.sleep(2)
            await self._insist(lambda: self._app.queues.aresume("default", by="person"))

    async def _delete(self, job: int) -> None:
        if self._world.server.delete(job):
            self._judge.note_deleted(job)

    async def _release(self, job: int) -> None:
        """Retry or archive a dead job."""
        dead = [id_ for id_, _ in self._world.server.query(DEAD)]
        if dead:
            job = self._draw.choice(dead)
            if self._draw.random() < 0.5:
                await self._retry(job)
            else:
                await self._archive(job)

    async def _archive(self, job: int) -> None:
        self._judge.note_touched(job)
        await self._app.jobs.aarchive(job, why="it was done by hand", by="person")

    async def release_all(self) -> None:
        """Let all groups go on."""
        for job, job_type in self._world.server.query(DEAD):
            if job_type == "halt":
                await self._archive(job)

    async def _cap(self, job: int) -> None:
        """Let fewer jobs of the queue run for a while, one person at a time."""
        async with self._changing:
            await self._set_cap(5)
            self._judge.note_cap(5)
            await asyncio.sleep(self._draw.uniform(5, 30))
            self._judge.note_cap(None)
            await self._insist(lambda: self._set_cap(None))

    async def _insist(self, act: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Let the queue go on, as soon as nobody has its row locked."""
        while True:
            with suppress(RotaError, psycopg.Error):
                await act()
                self._judge.note_pause(self._world.loop.now + 1)  # it may have waited for the row
                return
            self._judge.note_pause(self._world.loop.now + 2)
            await asyncio.sleep(1)

    async def _set_cap(self, limit: int | None) -> None:
        text = b"select rota.queue_set_max_running('default', %(limit)s, p_by => 'person')"
        connection = await vars(self._app)["_opened"].connect("person")
        try:
            await connection.driver().run(text, {"limit": limit})
        finally:
            await connection.close()

    async def _limit(self, job: int) -> None:
        """Lower the rate limit for a while, one person at a time."""
        async with self._changing:
            await self._app.limits.aset("r", STARTS // 2, burst=BURST, by="person")
            self._judge.note_limit(STARTS // 2)
            await asyncio.sleep(self._draw.uniform(5, 30))
            self._judge.note_limit(STARTS)
            await self._app.limits.aset("r", STARTS, burst=BURST, by="person")

    async def clear_queue(self) -> None:
        """Let the queue give all its jobs."""
        await self._insist(lambda: self._app.queues.aresume("default", by="person"))
        await self._insist(lambda: self._set_cap(None))
