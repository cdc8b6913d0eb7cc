"""A process that runs the handlers of one job type, seen from inside."""

from __future__ import annotations

import asyncio
import contextvars
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import Any

from msgspec.structs import replace

from rota import logs
from rota.declare.around import Around
from rota.declare.context import Context
from rota.declare.job_type import SenderOfJobs
from rota.declare.result import read_return
from rota.model.effect import EffectAnswer, EffectCall
from rota.model.outcome import (
    End,
    Errored,
    Failed,
    Failure,
    Outcome,
    Succeeded,
    find_outcome,
    is_stop,
    make_plain,
    refuse_outcome,
)
from rota.model.retry import DEFAULT_RETRY
from rota.model.scrub import Hidden, hide
from rota.model.settle import RetryRules, judge, judge_cause
from rota.runtime.child_process import SIGNALS, Channel, handled, join_parent
from rota.runtime.loop import call_in_thread
from rota.store.db import Database
from rota.worker.completion import Completer
from rota.worker.effects import EffectKeeper
from rota.worker.invoke import ainvoke, invoke
from rota.worker.processes import messages
from rota.worker.processes.importable import import_handler

PROGRESS_S = 0.25
"""The shortest time between two messages of progress; the worker writes it less often still."""


def main(descriptor: int) -> None:
    """Serve the worker at the other end of the channel until it is gone."""
    for number in SIGNALS:  # only the worker ends this process
        signal.signal(number, _ignore)  # programs that a handler starts would inherit SIG_IGN
        handled.add(number)
    channel = join_parent(descriptor)
    if sys.stdout is not None:  # a kill would lose a handler's buffered output
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    setup: messages.Setup = channel.receive()
    channel.send(messages.Importing())
    try:
        handler, jobs, arounds = import_handler(setup)
        # After the import, which may set logging up itself.
        logs.setup(setup.log_format or logs.Form.PLAIN, None, root_level=setup.log_level)
    except BaseException as error:  # noqa: BLE001 - importing runs the application's code
        channel.send(messages.NotReady(_judge(error, RetryRules(1, DEFAULT_RETRY))))
        return
    HandlerProcess(channel, setup, handler, arounds, jobs).serve()


def _ignore(*_: object) -> None: ...


class ProcessEffects(EffectKeeper):
    """Writes the effects of this process's handlers, on connections of this process."""

    async def acall(self, context: Context, call: EffectCall) -> EffectAnswer:
        """Write in a thread: the loop of an async handler is new, and would have to connect."""
        return await call_in_thread(partial(self.call, context, call), "rota-effect")


class HandledJob:
    def __init__(self, context: Context, hidden: Hidden | None) -> None:
        self._context = context
        self.hidden = hidden
        self.end: End
        """How it ended. Set once the handler was called."""

    def open_context(self) -> Context:
        return self._context

    def take_first_step(self, now: float) -> End | None:
        """Do nothing: the worker has noted that the handler begins."""
        return None

    def read_return(self, result: Any) -> End:
        return read_return(self._context.job, result)

    def read_error(self, error: BaseException) -> End:
        return _end_by_error(error)

    def take_end(self, end: End) -> None:
        self.end = end


class HandlerProcess:
    """This process: the main thread runs jobs, a second one receives, a third sends progress."""

    def __init__(
        self,
        channel: Channel,
        setup: messages.Setup,
        handler: Callable[..., Any],
        arounds: Sequence[Around],
        jobs: SenderOfJobs | None,
    ) -> None:
        self._channel = channel
        self._jobs = jobs
        self._setup = setup
        self._handler = handler
        self._arounds = arounds
        retry_on, fatal_on = pickle.loads(setup.errors)
        self._rules = RetryRules(1, DEFAULT_RETRY, retry_on, fatal_on)
        database = Database(setup.url, setup.schema, notify=setup.notify)
        self._completer = Completer(database, setup.release, self._note_completing)
        self._effects = ProcessEffects(database)
        self._began_at = 0.0
        self._runs: queue.SimpleQueue[tuple[messages.RunJob, Context]] = queue.SimpleQueue()
        """From the receiving thread to the main thread."""
        self._context: Context | None = None
        """The context of the last job. Set by the receiving thread: a stop request finds it."""
        self._progressed: Context | None = None
        """Whose progress to send. Set by any thread of the handler, before the event."""
        self._has_progress = threading.Event()
        self._telling = threading.Lock()
        """Held from the read of a report until it is sent, so that reports stay in order."""
        self._cancel: Callable[[], object] | None = None
        """Cancels an async handler. Set by the main thread while its loop runs."""

    def serve(self) -> None:
        try:
            for target in (self._receive, self._send_progress):
                threading.Thread(target=target, name="rota-handlers", daemon=True).start()
        except RuntimeError as error:
            self._channel.send(messages.NotStarted(str(error)))
            return
        self._channel.send(messages.Ready())
        while True:
            run, context = self._runs.get()
            hidden = None if run.hidden is None else Hidden(*run.hidden)
            end = contextvars.copy_context().run(self._attempt, run, context, hidden)
            if context._has_news:
                self._tell_progress(context)
            with hide(hidden):
                told = self._simplify(end, context)
            self._channel.send(messages.Ended((run.job.id, run.job.claims), told))
            del hidden, end

    def _receive(self) -> None:
        with suppress(EOFError):
            while (message := self._channel.receive(self._setup.silent_s)) is not None:
                if isinstance(message, messages.RunJob):
                    # Made here, because a stop request may follow at once.
                    self._context = Context(
                        message.job,
                        self._setup.worker,
                        None,
                        self._note,
                        self._completer,
                        self._effects,
                        {result.id: result for result in message.results},
                        self._jobs,
                        partial(_find_time_left, monotonic() + message.timeout_s),
                    )
                    self._channel.send(messages.Begun())
                    self._runs.put((message, self._context))
                elif isinstance(message, messages.Stop):
                    self._stop(message.why)
        # The worker is gone: as the kernel should have done.
        os.killpg(0, signal.SIGKILL)

    def _note_completing(self, context: Context) -> float:
        self._channel.send(messages.Completing((context.job.id, context.job.claims)))
        return monotonic() - self._began_at

    def _note(self, context: Context) -> None:
        self._progressed = context
        self._has_progress.set()

    def _send_progress(self) -> None:
        with suppress(EOFError):  # the receiving thread ends the process
            while self._has_progress.wait():
                self._has_progress.clear()
                context = self._progressed
                assert context is not None
                self._tell_progress(context)
                sleep(PROGRESS_S)

    def _tell_progress(self, context: Context) -> None:
        job = context.job
        with self._telling:
            told = context._progress
            self._channel.send(
                messages.Progressed((job.id, job.claims), context._encode_progress())
            )
            context._stored = told

    # Running

    def _attempt(self, run: messages.RunJob, context: Context, hidden: Hidden | None) -> End:
        self._began_at = monotonic()
        try:
            arguments = pickle.loads(run.arguments)
        except BaseException as error:  # noqa: BLE001 - unpickling runs the application's code
            return _end_by_error(error)
        handled = HandledJob(context, hidden)
        given = (context,) if self._setup.takes_context else ()
        call = partial(self._handler, *given, **arguments)
        if self._setup.is_async:
            asyncio.run(self._finish(handled, call))
        else:
            invoke(handled, call, self._arounds, monotonic, HandledJob.take_end)
        end = handled.end
        del handled.end  # an error keeps alive what knows it: see `Attempt.forget_error`
        return end

    async def _finish(self, handled: HandledJob, call: Callable[[], Any]) -> None:
        """Call and await an async handler, so that it can be cancelled."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if handled.open_context().cancelled is not None:
            self._cancel()
        try:
            await ainvoke(handled, call, self._arounds, monotonic, HandledJob.take_end)
        finally:
            self._cancel = None

    def _stop(self, why: str) -> None:
        if self._context is not None:
            self._context._request_stop(why)
        cancel = self._cancel
        if cancel is not None:
            with suppress(RuntimeError):  # its loop has just been closed: the handler has ended
                cancel()

    # Ending

    def _simplify(
        self, end: End, context: Context
    ) -> Succeeded | Failed | Outcome | messages.Stopped:
        """Return an end in classes that pickle; of the application's only the text is left."""
        try:
            match end:
                case Succeeded():
                    return end
                case Outcome():
                    plain = make_plain(end)
                    cause = judge_cause(end, self._rules)
                    plain._judged_cause = None if cause is None else _name_as_main(cause)
                    return plain
                case Errored(error) if context.cancelled is not None and is_stop(error):
                    return messages.Stopped()
                case Errored(error):
                    return Failed(_judge(error, self._rules))
            raise TypeError(f"not an end: {type(end).__name__}")
        except BaseException as error:  # noqa: BLE001 - of the application's class
            return Failed(_judge(refuse_outcome(error).error, self._rules))


def _find_time_left(until: float, context: Context) -> float:
    return until - monotonic()


def _end_by_error(error: BaseException) -> End:
    return find_outcome(error) or Errored(error)


def _judge(error: BaseException, rules: RetryRules) -> Failure:
    return _name_as_main(judge(error, rules))


def _name_as_main(failure: Failure) -> Failure:
    error_type = failure.error_type.replace("__mp_main__.", "__main__.")
    return replace(failure, error_type=error_type)
