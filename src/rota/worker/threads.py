"""Daemon threads for plain functions. The standard pool's threads keep a process alive until they end; a handler that hangs must not."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Threads:
    """Up to as many threads as there were jobs at once; each is used again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def submit(self, call: Callable[[], object]) -> None:
        """Run `call` in a thread; it must not raise. From one thread only. Raises RuntimeError when the machine gives no thread: then it will not run."""
        if not self._idle.acquire(blocking=False):
            threading.Thread(
                target=self._main, name=f"{self._name}-{self._count + 1}", daemon=True
            ).start()
            self._count += 1
        self._work.put(call)

    def close(self) -> None:
        """Let idle threads end; one that still runs ends when its call returns."""
        for _ in range(self._count):
            self._work.put(None)

    def _main(self) -> None:
        while (call := self._work.get()) is not None:
            call()
            self._idle.release()
