"""A limit to the wait for an answer, whatever the network does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rota.store.errors import ServerTrouble

if TYPE_CHECKING:
    from types import TracebackType

    from rota.store.drivers.own import OwnConnection

CANCEL_S = 2.0
"""Longest time for a late server to receive the cancel; at most a quarter of the limit."""


class Deadline:
    """A limit for a block that waits for one answer. It can be entered again and again.

    At the limit the server is asked to cancel the statement, which would otherwise keep waiting for
    a lock and hold locks itself. If that brings no answer either, the connection is cut and the
    block raises ServerTrouble.
    """

    __slots__ = ("_cancel_s", "_connection", "_has_cut", "_limit_s", "_task", "_timer")

    def __init__(self, connection: OwnConnection, limit_s: float) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._cancel_s = min(CANCEL_S, limit_s / 4)
        self._has_cut = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._lose)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._has_cut and isinstance(error, Exception):
            raise ServerTrouble(f"no answer within {self._limit_s:g} s") from error

    def _lose(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._cut())

    async def _cut(self) -> None:
        await self._connection.cancel(self._cancel_s)
        await asyncio.sleep(self._cancel_s)
        self._has_cut = True
        self._connection.cut()
