"""The handlers of a simulated world, and what they tell the judge."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import rota
from tests.sim.judge import TOLD_S, Run
from tests.sim.kinds import KINDS, LASTS_S

if TYPE_CHECKING:
    from tests.sim.loop import Process
    from tests.sim.world import World


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
            return await self._run(name, ctx, n)

        async def handle_old(ctx: rota.Context, n: str) -> int:
            return await self._run(name, ctx, int(n))

        self.jobs.job(name, takes_context=True, **options)(handle_old if is_old else handle)

    async def _run(self, name: str, ctx: rota.Context, n: int) -> int:
        draw = random.Random(f"{self._world.story.seed} {ctx.job.id} {ctx.job.claims}")
        run = Run(ctx.job.id, ctx.job.claims, name, str(self._process), ctx.job.group_key, n)
        self._judge.begin(run)
        self._tell(f"begins {run.job} {name} claim {run.claim}")
        is_finished = False
        try:
            await asyncio.sleep(draw.choice(LASTS_S))
            if name in ("flaky", "child") and draw.random() < 0.3:
                raise ValueError("drawn")
            if name == "calls" and self._world.is_endpoint_down():
                if draw.random() < 0.5:
                    raise rota.RateLimited(retry_after="3s")
                run.has_failed = True
                raise ConnectionError("the endpoint does not answer")
            if name == "limited" and draw.random() < 0.03:
                self._judge.note_told_to_wait()
                raise rota.RateLimited(retry_after=f"{TOLD_S:g}s")
            if name == "pays":
                effect = ctx.effect(f"pay {run.job}", if_uncertain="skip")
                await effect.call(self._pay, run)
            if name == "parent":
                await self._join(ctx, run)
            is_finished = True
        finally:
            if not self._process.is_dead:
                self._judge.end(run, is_finished=is_finished)
                self._tell(f"ends {run.job}{'' if is_finished else ' early'}")
        return n

    async def _pay(self, run: Run) -> str:
        await asyncio.sleep(0.05)
        self._judge.note_paid(run)
        await asyncio.sleep(0.05)
        return "paid"

    async def _join(self, ctx: rota.Context, run: Run) -> None:
        async def enqueue() -> list[int]:
            self._judge.note_step(run)
            child = self.jobs.types["child"]
            keys = [f"{run.job} {number}" for number in range(2)]
            made = await self.app.aenqueue_many([child.using(key=k).new(n=0) for k in keys])
            return [one.id for one in made]

        children = await ctx.step("enqueue children", enqueue)
        self._judge.note_step_kept(run)
        if not ctx.results:
            raise rota.WaitFor(children)
        self._judge.note_joined(run, {id_: ctx.results[id_].outcome for id_ in children})

    def _tell(self, what: str) -> None:
        self._world.tell(self._process, what)
