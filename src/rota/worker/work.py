"""A worker of this process, and what stops it from outside: signals and the parent process."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rota.observe.events import Bus
from rota.runtime import supervised
from rota.runtime.child_process import handled, is_hang_up_ignored
from rota.runtime.health_server import serve_health
from rota.runtime.http import aping
from rota.store.db import Database
from rota.store.driver import Operation
from rota.worker.spec import WorkerSpec
from rota.worker.summary import Summary
from rota.worker.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""The first signal stops a worker, the second stops it now."""


async def work(
    database: Database,
    spec: WorkerSpec,
    bus: Bus,
    check: Operation[None],
    metrics: Callable[[], str] | None,
    health_port: int | None,
    *,
    signals: bool,
) -> Summary:
    """Work until the worker ends, once `check` has found that its release fits the schema."""
    worker = Worker(database, spec, bus)
    config, health = spec.config, worker.health
    with (
        serve_health(health_port, health.liveness, health.readiness, metrics),
        handle_signals(worker, signals=signals),
    ):
        await database.arun(check)
        if supervised.current is not None:
            supervised.current.metrics = metrics
            supervised.current.confirm_fit()
        report = await worker.run()
        if config.drain and config.ping_url is not None and not worker.is_stopping:
            # Signals are still handled here: a late signal does not end a drain that is done.
            await aping(config.ping_url)
    return report


@contextmanager
def handle_signals(worker: Worker, *, signals: bool) -> Iterator[None]:
    """For a block on the worker's loop, let the first signal stop the worker and the second stop it
    now. SIGHUP never stops it now: the kernel and the shell both send it when a terminal closes.
    Nor does a signal with several processes, where systemd signals all of a service: then only the
    parent can. An ignored SIGHUP, as under `nohup`, stays ignored."""
    loop = asyncio.get_running_loop()
    own = supervised.current

    def on_signal() -> None:
        if worker.is_stopping and own is None:
            worker.stop_now()
        else:
            worker.stop()

    # Only the main thread receives signals.
    is_main = threading.current_thread() is threading.main_thread()
    handlers = dict.fromkeys(SIGNALS, on_signal) if signals and is_main else {}
    if handlers and not is_hang_up_ignored():
        handlers[signal.SIGHUP] = worker.stop
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
        handled.add(number)
    try:
        with nullcontext() if own is None else own.command(worker, loop):
            yield
    finally:
        for number in handlers:
            handled.discard(number)
            loop.remove_signal_handler(number)
