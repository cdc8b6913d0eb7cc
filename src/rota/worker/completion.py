"""Finishes a job in its handler's transaction: its writes and the success commit together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from rota.declare.context import Context
from rota.errors import AttemptCancelled
from rota.store import ops
from rota.store.db import Database
from rota.store.drivers import is_async

_FINISHED = "finished"
NOT_HELD = "in the database of this connection the job is not held by this attempt"


class NotCommitted(Exception):
    """The handler ended, and the transaction that would have finished its job was not committed."""

    def __init__(self) -> None:
        super().__init__("the transaction in which ctx.complete() was called was not committed")


class Completer:
    """Finishes the jobs of one worker, or of one handler process. From any thread."""

    def __init__(
        self, database: Database, release: str, note: Callable[[Context], float | None]
    ) -> None:
        self._database = database
        self._release = release
        self._note = note
        """Called before the job is finished. Returns the seconds since its handler began."""

    def complete(self, context: Context, connection: Any, result_json: str | None) -> Any:
        """Finish the job on this connection. On an async connection the answer must be awaited."""
        ran_s = self._note(context)
        progress_json = context._encode_progress() if context._has_news else None
        operation = ops.complete(context.job, ran_s, result_json, self._release, progress_json)
        if is_async(connection):
            return self._acomplete(context, operation, connection)
        _refuse_if_not(self._database.run(operation, connection, joins=_FINISHED))
        context._completed_on = connection
        return None

    async def _acomplete(
        self, context: Context, operation: ops.Completion, connection: Any
    ) -> None:
        _refuse_if_not(await self._database.arun(operation, connection, joins=_FINISHED))
        context._completed_on = connection  # not before: a call that nobody awaits finishes nothing

    def open(self) -> AbstractContextManager[Any]:
        return self._database.open_transaction()

    def aopen(self) -> AbstractAsyncContextManager[Any]:
        """Open a connection with a transaction, for the running loop."""
        return self._database.aopen_transaction()


def _refuse_if_not(is_held: bool) -> None:
    if not is_held:
        raise AttemptCancelled(NOT_HELD)
