"""Calls handlers: async functions on the worker's loop, plain ones in threads, and those that ask for it in processes of their own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.declare.context import enter
from rota.worker.admission import not_started, too_late
from rota.worker.attempt import end_of, end_of_error
from rota.worker.forked import generation, leave_if_forked
from rota.worker.threads import Threads

if TYPE_CHECKING:
    from rota.model.outcome import End
    from rota.worker.held import Held
    from rota.worker.processes import Processes


class Handlers:
    """What a handler came to is said to `on_ended`, on the worker's loop. It decides nothing."""

    def __init__(self, processes: Processes, on_ended: Callable[[Held, End], None]) -> None:
        self._on_ended = on_ended
        self._threads = Threads("rota-handler")
        self._processes = processes
        self._loop = asyncio.get_running_loop()
        self._generation = generation()
        # Every handler starts from the worker's own context: one is often started where another has just ended, whose variables are its own.
        self._context = contextvars.copy_context()

    def begin(self, held: Held, arguments: dict[str, Any]) -> None:
        """Have the handler called; returns at once."""
        if held.job_type.options.process is not None:
            held.task = self._loop.create_task(
                self._in_process(held, arguments), name=f"rota job {held.job.id}"
            )
        elif held.job_type.is_async:
            held.task = self._loop.create_task(
                self._on_loop(held, arguments),
                context=self._context.copy(),
                name=f"rota job {held.job.id}",
            )
        else:
            held.begun_at = held.started_at
            try:
                self._threads.submit(self._in_thread(held, arguments))
            except RuntimeError as error:
                self._loop.call_soon(self._on_ended, held, not_started(held, "thread", error))

    def close(self) -> None:
        """Let the threads end; end the processes."""
        self._threads.close()
        self._processes.close()

    async def _on_loop(self, held: Held, arguments: dict[str, Any]) -> None:
        assert held.context is not None
        enter(held.context)
        late = too_late(held)
        if late is not None:
            self._on_ended(held, late)
            return
        held.started_at = held.begun_at = (
            monotonic()
        )  # a blocked loop may have kept it waiting; its time begins now
        try:
            func = held.job_type.func
            end = end_of(
                held.job,
                await (
                    func(held.context, **arguments)
                    if held.job_type.takes_context
                    else func(**arguments)
                ),
            )
        except BaseException as error:  # noqa: BLE001 - SystemExit and a cancellation too: they end the attempt, never the worker
            end = end_of_error(held, error)
        leave_if_forked(self._generation, end)
        self._on_ended(held, end)

    async def _in_process(self, held: Held, arguments: dict[str, Any]) -> None:
        self._on_ended(held, await self._processes.attempt(held, arguments))

    def _in_thread(self, held: Held, arguments: dict[str, Any]) -> Callable[[], None]:
        def call() -> None:
            assert held.context is not None
            enter(held.context)
            end = too_late(held)
            if end is None:
                try:
                    func = held.job_type.func
                    end = end_of(
                        held.job,
                        func(held.context, **arguments)
                        if held.job_type.takes_context
                        else func(**arguments),
                    )
                except BaseException as error:  # noqa: BLE001 - as above
                    end = end_of_error(held, error)
            leave_if_forked(self._generation, end)
            with suppress(
                RuntimeError
            ):  # the loop is closed: the worker had given this thread up, and its job back
                self._loop.call_soon_threadsafe(self._on_ended, held, end)

        context = self._context.copy()
        return lambda: context.run(call)
