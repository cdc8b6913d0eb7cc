"""Whether the machine is quiet enough to compare figures: other work slows a peer more than us."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from multiprocessing import Process, Queue

WATCH_S = 1.0
"""How long the machine is watched while we do nothing."""
BUSY_MAX = 0.10
"""The most cores that others may use meanwhile."""
TURNS = 3_000_000
TRIES = 5
SLOWDOWN_MAX = 1.15
"""Two loops at once may take this much longer than one alone: then two cores are free."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured before the figures."""

    busy: float
    """Cores that others used while we did nothing."""
    slowdown: float
    """How much longer an empty loop took beside another one."""

    @property
    def is_quiet(self) -> bool:
        """Whether figures of two sides can be compared."""
        return self.busy <= BUSY_MAX and self.slowdown <= SLOWDOWN_MAX

    def __str__(self) -> str:
        said = f"others use {self.busy:.2f} cores, two loops at once take {self.slowdown:.2f} times"
        return f"{'quiet' if self.is_quiet else 'NOT COMPARABLE, the machine is busy'}: {said}"


def measure_load() -> Load:
    """Watch the machine for some seconds."""
    before, began = _read_busy_s(), time.monotonic()
    threading.Event().wait(WATCH_S)
    busy = (_read_busy_s() - before) / (time.monotonic() - began)
    # The best of some tries: a machine that others use is slow each time.
    alone = min(_time_loops(1)[0] for _ in range(TRIES))
    together = min(max(_time_loops(2)) for _ in range(TRIES))
    return Load(busy, together / alone)


def describe_load() -> str:
    """Measure it; return a line for a person."""
    return str(measure_load())


def _read_busy_s() -> float:
    """Return the CPU seconds that all processes of the machine have used."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123 - no file
        user, nice, system, _, _, irq, soft_irq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def _time_loops(count: int) -> list[float]:
    """Return how long an empty loop takes in each of so many processes that run at once."""
    took: Queue[float] = Queue()
    loops = [Process(target=_loop, args=(took,)) for _ in range(count)]
    for process in loops:
        process.start()
    found = [took.get() for _ in loops]
    for process in loops:
        process.join()
    return found


def _loop(took: Queue[float]) -> None:
    began = time.perf_counter()
    for _ in range(TURNS):
        pass
    took.put(time.perf_counter() - began)
