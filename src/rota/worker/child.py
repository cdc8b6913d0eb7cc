"""A process that runs the handlers of one job type: what happens in it."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.spawn import prepare
from time import sleep
from typing import Any

from rota.declare.context import Context, enter
from rota.declare.job_type import JobType
from rota.errors import UsageError
from rota.model.outcome import (
    Cancel,
    Dead,
    End,
    Errored,
    Failed,
    Failure,
    Outcome,
    Retry,
    Snooze,
    Succeeded,
)
from rota.model.retry import DEFAULT_RETRY
from rota.model.settle import RetryRules, judge
from rota.runtime import logs
from rota.worker.attempt import end_of, is_stop
from rota.worker.forked import generation, leave_if_forked
from rota.worker.messages import (
    Begun,
    Ended,
    Importing,
    NotReady,
    NotStarted,
    Progressed,
    Ready,
    Run,
    Said,
    Setup,
    Stop,
    Stopped,
)

PROGRESS_S = 0.25
"""What a handler says of its progress goes to the worker so often at most, which writes it more seldom still."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""What a terminal or a supervisor sends to everybody. The worker decides what becomes of a process of its own; blocked until this one listens."""


def main(descriptor: int) -> None:
    """Serve the worker at the other end until it is gone."""
    for number in SIGNALS:
        signal.signal(
            number, _nothing
        )  # not SIG_IGN, which the programs that a handler starts would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if (
        sys.stdout is not None
    ):  # what a handler prints must not wait in a buffer that a kill would empty
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    connection = Connection(descriptor)
    setup: Setup = connection.recv()
    connection.send(Importing())
    try:
        handler = _handler(setup)
    except BaseException as error:  # noqa: BLE001 - importing runs the user's code; whatever it raises, the worker must hear it
        connection.send(NotReady(_judged(error, RetryRules(1, DEFAULT_RETRY))))
        return
    Child(connection, setup, handler).serve()


def find(module: str, qualname: str) -> Callable[..., Any]:
    """Import the function of that name, or that of the job type of that name. Raises ImportError or AttributeError when there is none."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found.func if isinstance(found, JobType) else found


def refuse_worker() -> None:
    """Raise UsageError when a worker is about to start because a process of its own imports the main module."""
    if _importing:
        raise UsageError(
            'a process of executor="process" imports the main module, which starts a worker when it is imported; '
            'start it under `if __name__ == "__main__":`'
        )


_importing = False


def _handler(setup: Setup) -> Callable[..., Any]:
    global _importing
    _importing = True
    sys.argv = setup.argv
    prepare(setup.main)
    if setup.app_module is not None:
        importlib.import_module(setup.app_module)
    handler = find(setup.module, setup.qualname)
    _importing = False
    logs.setup(
        setup.log_format or logs.Form.PLAIN, None, root_level=setup.log_level
    )  # unless the modules have done it
    return handler


def _nothing(*_: object) -> None: ...


class Child:
    """Runs one job after another in the main thread, while another thread listens to the worker."""

    def __init__(self, connection: Connection, setup: Setup, handler: Callable[..., Any]) -> None:
        self._connection = connection
        self._setup = setup
        self._handler = handler
        self._generation = generation()
        retry_on, fatal_on = pickle.loads(setup.errors)
        self._rules = RetryRules(1, DEFAULT_RETRY, retry_on, fatal_on)
        self._runs: queue.SimpleQueue[tuple[Run, Context]] = queue.SimpleQueue()
        self._context: Context | None = None
        self._said: Context | None = None
        self._has_said = threading.Event()
        self._sending = threading.Lock()
        self._cancel: Callable[[], object] | None = None

    def serve(self) -> None:
        """Run jobs until killed."""
        try:
            for target in (self._listen, self._report):
                threading.Thread(target=target, name="rota-child", daemon=True).start()
        except RuntimeError as error:
            self._connection.send(NotStarted(str(error)))
            return
        self._connection.send(Ready())
        while True:
            run, context = self._runs.get()
            end = contextvars.copy_context().run(self._attempt, run, context)
            ended = Ended(run.job.id, run.job.claims, self._plain(end, context))
            with self._sending:
                self._connection.send(ended)

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                os.killpg(
                    0, signal.SIGKILL
                )  # the worker is gone; the kernel does the same, but this works on every kernel
            if isinstance(message, Run):
                self._context = Context(
                    message.job, self._setup.worker, None, self._note
                )  # here, for the order to stop may follow at once
                with (
                    self._sending,
                    suppress(OSError),
                ):  # the worker is gone, which the next look tells
                    self._connection.send(Begun())
                self._runs.put((message, self._context))
            elif isinstance(message, Stop):
                self._stop(message.why)

    def _note(self, context: Context) -> None:
        self._said = context
        self._has_said.set()

    def _report(self) -> None:
        while self._has_said.wait():
            self._has_said.clear()
            context = self._said
            assert context is not None
            with (
                self._sending,
                suppress(OSError),
            ):  # the worker is gone, which the other thread notices
                self._connection.send(
                    Progressed(context.job.id, context.job.claims, context.encode_progress())
                )
            sleep(PROGRESS_S)

    # Running

    def _attempt(self, run: Run, context: Context) -> End:
        enter(context)
        try:
            arguments = pickle.loads(run.arguments)
            given = (context,) if self._setup.takes_context else ()
            result = self._handler(*given, **arguments)
            end = (
                asyncio.run(self._awaited(context, result))
                if self._setup.is_async
                else end_of(run.job, result)
            )
        except BaseException as error:  # noqa: BLE001 - SystemExit too: it ends the attempt
            end = self._end_of_error(error)
        leave_if_forked(self._generation, end)
        return end

    async def _awaited(self, context: Context, result: Any) -> End:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if context.cancelled is not None:
            self._cancel()
        try:
            end = end_of(context.job, await result)
        except BaseException as error:  # noqa: BLE001 - as above; here, so that the stack begins with the handler
            end = self._end_of_error(error)
        leave_if_forked(
            self._generation, end
        )  # before the loop is closed: what it waits with is the original's too
        self._cancel = None
        return end

    def _stop(self, why: str) -> None:
        if self._context is not None:
            self._context.tell_to_stop(why)
        cancel = self._cancel
        if cancel is not None:
            with suppress(RuntimeError):  # its loop has just been closed: the handler is over
                cancel()

    def _end_of_error(self, error: BaseException) -> End:
        return error if isinstance(error, Outcome) else Errored(error)

    # Ending

    def _plain(self, end: End, context: Context) -> Succeeded | Failed | Said | Stopped:
        """The same in what can be sent: of the user's classes only words are left."""
        try:
            match end:
                case Succeeded():
                    return end
                case Retry() | Snooze():
                    return Said(
                        "Retry" if isinstance(end, Retry) else "Snooze",
                        str(end.reason),
                        end.after_s,
                    )
                case Dead() | Cancel():
                    return Said("Dead" if isinstance(end, Dead) else "Cancel", str(end.reason))
                case Errored(error) if context.cancelled is not None and is_stop(error):
                    return Stopped()
                case Errored(error):
                    return Failed(_judged(error, self._rules))
            raise TypeError(f"not an outcome: {type(end).__name__}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what a handler raised is the user's class to its last method
            return Failed(_judged(_unreadable(error), self._rules))


def _unreadable(error: BaseException) -> UsageError:
    return UsageError(
        f"what the handler came to cannot be read: {type(error).__name__} while it was looked at"
    )


def _judged(error: BaseException, rules: RetryRules) -> Failure:
    failure = judge(error, rules)
    return replace(failure, error_type=failure.error_type.replace("__mp_main__.", "__main__."))
