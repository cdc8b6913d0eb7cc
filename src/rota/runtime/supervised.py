"""A worker process that a supervisor started, seen from inside: it follows its parent's stop
requests, reports its state, and does not outlive the parent."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rota.runtime.child_process import join_parent

logger = logging.getLogger("rota")

STOP = "stop"
STOP_NOW = "stop now"
METRICS = "metrics"
REPORT_S = 1.0
ORPHAN_S = 0.7
"""Seconds that a worker process without its parent has to hand its jobs back."""


class WorkerState(Protocol):
    """A worker's state, from any thread; None means live, or ready."""

    def liveness(self) -> str | None: ...

    def readiness(self) -> str | None: ...

    @property
    def passes(self) -> int: ...


class SupervisedWorker(Protocol):
    @property
    def health(self) -> WorkerState: ...

    def stop(self) -> None: ...

    def stop_now(self) -> None: ...


class Vitals(msgspec.Struct, omit_defaults=True):
    """What a worker process sends its parent. It travels as a dict: parent and child may be of two
    releases, when the package is replaced meanwhile."""

    is_fit: bool = False
    """The App was found, and the schema of its database fits: so further processes may start."""
    liveness: str | None = None
    """What is wrong with the worker; None: nothing."""
    readiness: str | None = None
    """Why it takes no jobs; None: it takes jobs."""
    passes: int = 0
    """Good passes of maintenance since the worker started."""
    report: dict[str, Any] | None = None
    """The worker's summary; in the last message only."""
    metrics: str | None = None
    """What it has measured, in the last message and if the parent asked; empty: nothing."""


class Supervised:
    """This process. A thread receives stop requests, so they arrive while the loop is blocked.
    Requests that come before the worker exists wait for it."""

    def __init__(self, descriptor: int) -> None:
        self._channel = join_parent(descriptor)
        self._lock = threading.Lock()
        """Guards the four fields below."""
        self._requests: list[str] = []
        self._worker: SupervisedWorker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._without_worker = "starting"
        self.metrics: Callable[[], str] | None = None
        """Renders what the process measures; None: it measures nothing."""
        self._devnull = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
        threading.Thread(target=self._receive_requests, name="rota-supervised", daemon=True).start()

    @contextmanager
    def command(self, worker: SupervisedWorker, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Pass stop requests on to a worker, for a block."""
        with self._lock:
            self._worker, self._loop = worker, loop
            for request in self._requests:
                self._pass_on(request)
        try:
            yield
        finally:
            with self._lock:
                self._worker = self._loop = None
                self._without_worker = "stopping"

    def confirm_fit(self) -> None:
        self._send(Vitals(is_fit=True, readiness="starting"))

    def report(self, report: msgspec.Struct) -> None:
        facts = msgspec.to_builtins(report)
        self._send(Vitals(report=facts, readiness="stopping", metrics=self._render_metrics()))

    def _render_metrics(self) -> str:
        return "" if self.metrics is None else self.metrics()

    def _receive_requests(self) -> None:
        while True:
            try:
                request = self._channel.receive(REPORT_S)
            except EOFError:
                self._end_orphaned()
                return
            if request is None:
                self._send_state()
                continue
            if request == METRICS:  # in a thread, because it may ask the database
                send = partial(self._send_state, asked=True)
                threading.Thread(target=send, daemon=True).start()
                continue
            with self._lock:
                self._requests.append(request)
                self._pass_on(request)

    def _end_orphaned(self) -> None:
        with self._lock:
            if self._worker is None:
                os._exit(1)
            # This timer needs neither the interpreter's lock, which a handler may hold, nor a
            # stream.
            faulthandler.dump_traceback_later(ORPHAN_S, exit=True, file=self._devnull)
            self._pass_on(STOP_NOW)
        logger.error("the parent process is gone: this process hands its jobs back and ends")

    def _pass_on(self, request: str) -> None:
        if self._worker is not None and self._loop is not None:
            act = self._worker.stop_now if request == STOP_NOW else self._worker.stop
            with suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(act)

    def _send_state(self, *, asked: bool = False) -> None:
        metrics = self._render_metrics() if asked else None
        with self._lock:
            health = None if self._worker is None else self._worker.health
        if health is None:
            self._send(Vitals(readiness=self._without_worker, metrics=metrics))
        else:
            self._send(
                Vitals(
                    liveness=health.liveness(),
                    readiness=health.readiness(),
                    passes=health.passes,
                    metrics=metrics,
                )
            )

    def _send(self, vitals: Vitals) -> None:
        with suppress(EOFError):  # the receiving thread ends the process
            self._channel.send(msgspec.to_builtins(vitals))


current: Supervised | None = None
"""This process, if a supervisor started it."""


def join(descriptor: int) -> None:
    """Make this process a supervised process, which does not outlive its parent."""
    global current
    current = Supervised(descriptor)
