"""Signals that tell a worker to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.worker.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def obeying(worker: Worker, *, signals: bool) -> Iterator[None]:
    """For a block on the worker's loop, let the first signal stop the worker and the second hurry it.
    """
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if worker.is_stopping:
            worker.hurry()
        else:
            worker.stop()

    numbers = SIGNALS if signals and threading.current_thread() is threading.main_thread() else ()  # other threads cannot hear any
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
