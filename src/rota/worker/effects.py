"""Writes what handlers tell of their effects; waits while the database is away."""

from __future__ import annotations

import asyncio
import time

from rota.declare.context import Context
from rota.errors import DatabaseUnavailable
from rota.model.back_off import BackOff
from rota.model.effect import EffectAnswer, EffectCall
from rota.store import ops
from rota.store.db import Database

PAUSE_S = (0.1, 2.0)
"""Shortest and longest pause between two tries."""


class EffectKeeper:
    """Keeps the effects of a worker's handlers. From any thread. Only the handler knows what has
    happened, so a write is repeated until the database has it or the attempt must stop."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def call(self, context: Context, call: EffectCall) -> EffectAnswer:
        pauses = BackOff(*PAUSE_S)
        while True:
            try:
                return self._database.run(ops.call_effect(call))
            except DatabaseUnavailable as error:
                _raise_unless_again(context, error)
            time.sleep(pauses.next_s())

    async def acall(self, context: Context, call: EffectCall) -> EffectAnswer:
        pauses = BackOff(*PAUSE_S)
        while True:
            try:
                return await self._database.arun(ops.call_effect(call))
            except DatabaseUnavailable as error:
                _raise_unless_again(context, error)
            await asyncio.sleep(pauses.next_s())


def _raise_unless_again(context: Context, error: DatabaseUnavailable) -> None:
    if context.cancelled is not None:
        raise error
