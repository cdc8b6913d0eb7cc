"""What is played: each module is a scenario with a NAME, a docstring that says what is measured,
`entries` that says who plays, and `play`, one turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

from bench.peers.result import Measured
from bench.peers.scenarios import (
    backlog,
    crash,
    drain,
    enqueue,
    idle,
    old_snapshot,
    pick_up,
    server_crash,
    steady,
)
from bench.peers.stage import Stage
from bench.peers.system import Setup, System


@dataclass(frozen=True, slots=True)
class Scenario:
    """A module of this package."""

    name: str
    about: str
    entries: Callable[[System], list[Setup]]
    play: Callable[[Stage, System, Setup], Iterator[Measured]]
    rounds_max: int
    """The most rounds, however many are asked for."""
    together: int
    """How many turns are played at the same time."""


def _read(module: ModuleType) -> Scenario:
    return Scenario(
        name=module.NAME,
        about=(module.__doc__ or "").strip(),
        entries=module.entries,
        play=module.play,
        rounds_max=module.ROUNDS_MAX,
        together=module.TOGETHER,
    )


MODULES = (
    crash, server_crash, drain, pick_up, enqueue, steady, idle, backlog, old_snapshot,
)  # fmt: skip
"""What matters most comes first: the run ends at its limit."""
SCENARIOS = {scenario.name: scenario for scenario in map(_read, MODULES)}
