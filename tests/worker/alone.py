"""An executor without the worker around it."""

from __future__ import annotations

from collections.abc import Callable

from rota.observe.events import Bus
from rota.worker.executor import Executor
from rota.worker.held import Held
from rota.worker.lane import Lane
from rota.worker.processes import Processes


def lone_executor(
    lane: Lane, on_end: Callable[[Held], None] = lambda _: None, *, buffer_s: float = 60.0
) -> Executor:
    """Runs the jobs that are given to it; `on_end` hears what they came to. None of them may need a recorded start."""
    return Executor(
        Bus(),
        [lane],
        "w",
        Processes("w", None),
        buffer_s=buffer_s,
        on_record=lambda held: None,
        on_end=on_end,
        on_free=lambda: None,
        on_exhausted=lambda: None,
    )
