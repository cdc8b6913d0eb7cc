"""The handlers of a simulated world, and what they tell the judge."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rota
from rota.model.outcome import Outcome
from tests.sim.judge import PAY_KEYS, TOLD_S, Run
from tests.sim.kinds import KINDS, LASTS_S

if TYPE_CHECKING:
    from tests.sim.loop import Process
    from tests.sim.world import World


@dataclass
class Item:
    """What one job of a call of many is given."""

    n: int


class Handlers:
    """The code of one process; that of the release `old` cannot read what `shaped` is given."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._judge = world.judge
        self._process = process
        self.jobs = rota.Jobs()
        for name, options in KINDS.items():
            self._declare(name, options, is_old=process.release == "old" and name == "shaped")
        self.app = world.make_app(process, self.jobs)

    def _declare(self, name: str, options: dict[str, Any], *, is_old: bool) -> None:
        async def handle(ctx: rota.Context, n: int) -> int:
            return await self._handle(name, ctx, n)

        async def handle_old(ctx: rota.Context, n: str) -> int:
            return await self._handle(name, ctx, int(n))

        handler: Any = handle_old if is_old else handle
        if "chunk" in options:
            handler = self._handle_many
        self.jobs.job(name, takes_context=True, **options)(handler)

    async def _handle(self, name: str, ctx: rota.Context, n: int) -> int:
        draw = self._draw(ctx)
        with self.running(name, ctx.job.id, ctx.job.claims, n) as run:
            for done in 1, 2:
                await asyncio.sleep(draw.choice(LASTS_S) / 2)
                run.told = 10 * run.claim + done
                ctx.progress(run.told)
            work = getattr(self, f"_{name}", None)
            if work is not None:
                await work(ctx, run, draw)
        return n

    async def _handle_many(self, ctx: rota.Context, items: list[Item]) -> list[Exception | None]:
        draw = self._draw(ctx)
        failed: list[Exception | None] = []
        with ExitStack() as stack:
            jobs = [item.job for item in ctx.items]
            runs = [
                stack.enter_context(self.running("many", job.id, job.claims, item.n))
                for job, item in zip(jobs, items, strict=True)
            ]
            self._judge.look_at_a_call(runs)
            await asyncio.sleep(draw.choice(LASTS_S))
            for run in runs:
                run.end = "failed" if draw.random() < 0.2 else "finished"
                failed.append(ValueError("drawn") if run.end == "failed" else None)
        return failed

    def _draw(self, ctx: rota.Context) -> random.Random:
        return random.Random(f"{self._world.story.seed} {ctx.job.id} {ctx.job.claims}")

    @contextmanager
    def running(self, name: str, job: int, claim: int, n: int) -> Iterator[Run]:
        """Tell the judge that a handler runs, and how it ends."""
        run = Run(job, claim, name, str(self._process), n)
        self._judge.begin(run)
        self._tell(f"begins {job} {name} claim {claim}")
        try:
            yield run
            run.end = run.end or "finished"
        except Outcome as outcome:
            run.end = "failed" if isinstance(outcome, rota.Dead) else "waits"
            raise
        except Exception:
            run.end = "failed"
            raise
        finally:
            if not self._process.is_dead:
                self._judge.end(run)
                self._tell(f"ends {job} {run.end or 'early'}")

    # What a handler does beside taking its time

    async def _flaky(self, ctx: rota.Context, run: Run, draw: random.Random) -> None:
        if draw.random() < 0.3:
            raise ValueError("drawn")

    _row = _halt = _child = _flaky

    async def _calls(self, ctx: rota.Context, run: Run, draw: random.Random) -> None:
        if self._world.is_endpoint_down():
            if draw.random() < 0.3:
                raise rota.RateLimited(retry_after="3s")
            raise ConnectionError("the endpoint does not answer")

    async def _limited(self, ctx: rota.Context, run: Run, draw: random.Random) -> None:
        if draw.random() < 0.03:
            self._judge.note_told_to_wait()
            raise rota.RateLimited(retry_after=f"{TOLD_S:g}s")

    async def _pays(self, ctx: rota.Context, run: Run, draw: random.Random) -> None:
        """Do what must not happen twice for a key, which several jobs may have."""
        key = run.n % PAY_KEYS
        if_uncertain: rota.records.IfUncertain = "skip" if key % 2 else "dead"
        effect = ctx.effect(f"pay {key}", if_uncertain=if_uncertain)
        await effect.call(self._pay, run, draw.random())
        self._judge.look_at_a_payment(run)

    async def _pay(self, run: Run, drawn: float) -> str:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self._judge.note_unpaid(run)
            raise
        if drawn < 0.1:
            raise ConnectionRefusedError("nothing has happened")
        self._judge.note_paid(run)
        await asyncio.sleep(0.05)
        if drawn < 0.2:
            raise TimeoutError("what has happened?")
        return "paid"

    async def _writes(self, ctx: rota.Context, run: Run, draw: random.Random) -> None:
        """Write, and finish the job, in one transaction."""
        async with ctx.transaction() as connection:
            given = {"job": run.job, "claim": run.claim}
            text = b"insert into sim.ledger values (%(job)s, %(claim)s) returning job"
            await connection.driver().run(text, given)
            await asyncio.sleep(draw.choice((0, 0.05, 5)))
            if draw.random() < 0.1:
                raise ValueError("drawn")

    async def _parent(self, ctx: rota.Context, run: Run, draw: random.Random) -> None:
        """Wait for two children, and then for two others."""
        for part in ("first", "second"):
            children = await ctx.step(f"enqueue the {part}", self._enqueue_children, run, part)
            self._judge.note_step_kept(run, part)
            if not all(child in ctx.results for child in children):
                raise rota.WaitFor(children)
            self._judge.note_joined(run, {id_: ctx.results[id_].outcome for id_ in children})

    async def _enqueue_children(self, run: Run, part: str) -> list[int]:
        self._judge.note_step(run, part)
        child = self.jobs.types["child"]
        keys = [f"{run.job} {part} {number}" for number in range(2)]
        made = await self.app.aenqueue_many([child.using(key=k).new(n=0) for k in keys])
        return [job.id for job in made]

    def _tell(self, what: str) -> None:
        self._world.tell(self._process, what)
