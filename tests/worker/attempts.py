"""Attempts without a worker: claimed, run and settled one after the other."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any, Self

import rota
from rota.declare.result import read_error, read_return
from rota.model.job import Job
from rota.model.settle import Transition, settle
from rota.store.db import Database
from rota.worker.effects import EffectKeeper
from tests.store.work import Hand
from tests.worker.table import Connection, value

AT_ONCE = rota.Fixed("1s", jitter=0)


class Attempts:
    """`async with Attempts(url, connection, handler) as attempts:` has what a worker gives the
    handler of the type `sends`: effects and steps. A plain handler runs in a thread."""

    def __init__(
        self, url: str, connection: Connection, handler: Callable[..., Any], **options: Any
    ) -> None:
        jobs = rota.Jobs()
        jobs.job("sends", takes_context=True, **{"retry": AT_ONCE, **options})(handler)
        self.rules = jobs.types["sends"]._declaration.rules
        self._handler = handler
        self._connection = connection
        self._hand = Hand(connection, types=["sends"])
        self._database = Database(url)
        self._effects = EffectKeeper(self._database)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._database.close()
        await self._database.aclose()

    async def run_all(self) -> None:
        """Run until no job is left but dead ones; those that wait are due at once."""
        while value(self._connection, "select count(*) from rota.job where status <> 'dead'"):
            for job in self.claim():
                await self.run(job)

    def claim(self) -> list[Job]:
        """Claim all jobs that wait, whenever they would be due."""
        self._connection.execute(
            "update rota.job set run_at = rota.clock() where status in ('failed', 'queued')"
        )
        return self._hand.claim().jobs

    def make_context(self, job: Job) -> rota.Context:
        """Return what a worker gives the handler of a job."""
        return rota.Context(job, "hand", effects=self._effects)

    async def run(self, job: Job) -> tuple[Transition, bool]:
        """Run an attempt; return what becomes of its job, and whether it was still held."""
        context = self.make_context(job)
        arguments = json.loads(job.payload_json)
        try:
            if inspect.iscoroutinefunction(self._handler):
                end = read_return(job, await self._handler(context, **arguments))
            else:
                returned = await asyncio.to_thread(self._handler, context, **arguments)
                end = read_return(job, returned)
        except BaseException as error:  # noqa: BLE001 - as a worker does
            end = read_error(error, None)
        transition = settle(job, end, self.rules)
        return transition, job.id in self._hand.settle((job, transition))
