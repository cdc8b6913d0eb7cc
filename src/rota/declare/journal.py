"""The effects and steps of one attempt, as its context keeps them."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Protocol

from rota.errors import UsageError

if TYPE_CHECKING:
    from rota.declare.context import Context
    from rota.model.effect import EffectAnswer, EffectCall

CANCELLED_S = 0.4
"""Seconds that a cancelled async handler waits for a write about an effect. The worker gives it
more than twice this time to stop."""


class KeepsEffects(Protocol):
    """Writes effects to the database: the worker's part."""

    def call(self, context: Context, call: EffectCall) -> EffectAnswer: ...
    async def acall(self, context: Context, call: EffectCall) -> EffectAnswer: ...


class Journal:
    """The effects and steps of one attempt. Its handler uses it from any thread."""

    def __init__(self, context: Context, keeper: KeepsEffects | None) -> None:
        self._context = context
        self._keeper = keeper
        self.job = context.job.id
        self.claims = context.job.claims
        self.entries = itertools.count(1)
        """The numbers of the attempt's intents."""
        self._lock = threading.Lock()
        self._steps: dict[str, int] = {}
        """The place of each called step."""
        self._open: set[str] = set()
        self.unasked: list[str] = []
        """Done effects whose blocks did not ask."""

    def continue_after(self, earlier: Journal) -> None:
        """Continue after another call of the handler: an open effect may have happened."""
        self.entries = earlier.entries
        self.unasked = earlier.unasked

    def next_place(self, name: str) -> int:
        """Return the place of the next step. Raises UsageError if the step was called before."""
        with self._lock:
            if name in self._steps:
                raise UsageError(
                    f"step {name!r} was called before in this attempt; give each step of a job a "
                    "name of its own, such as f'page:{number}'"
                )
            self._steps[name] = len(self._steps) + 1
            return self._steps[name]

    def open(self, intent: EffectCall) -> None:
        """Note that a block begins. Raises UsageError within a block of the same effect."""
        with self._lock:
            if intent.name in self._open:
                raise UsageError(
                    f"effect {intent.key!r} is open already in this attempt; it has one block at a "
                    "time"
                )
            self._open.add(intent.name)

    def close(self, intent: EffectCall) -> None:
        with self._lock:
            self._open.discard(intent.name)

    def refuse_open(self) -> None:
        """Raise UsageError if a block is open: its end cannot be written after the job's."""
        with self._lock:
            for what in self._open:
                raise UsageError(
                    f"{what} is open: the commit ends the job, so that its result could not be "
                    "written any more; begin the transaction after it"
                )

    def call(self, call: EffectCall) -> EffectAnswer:
        """Write an intent or its end."""
        return self._find_keeper().call(self._context, call)

    async def acall(self, call: EffectCall) -> EffectAnswer:
        """As `call`, on the running loop. If the handler is cancelled, the write may still end."""
        task = asyncio.ensure_future(self._find_keeper().acall(self._context, call))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=CANCELLED_S)
            task.add_done_callback(_forget)
            task.cancel()
            raise

    def _find_keeper(self) -> KeepsEffects:
        if self._keeper is None:
            raise UsageError("only a worker can keep the effects of a context")
        return self._keeper


def _forget(task: asyncio.Future[EffectAnswer]) -> None:
    """Take the error of a write that nobody awaits any more: asyncio would report it."""
    if not task.cancelled():
        task.exception()
