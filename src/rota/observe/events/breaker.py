"""Events of circuit breakers, from the worker whose result changed one."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rota.model.units import plural, words
from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened(Event):
    """A breaker has opened, or stays open because its trial failed: its jobs wait."""

    level = logging.WARNING
    breaker: str
    """Name of the breaker."""
    key: str | None
    """The key whose jobs wait; None: the breaker has no keys."""
    for_s: float
    """Seconds until one job may try."""
    failures: int | None
    """After how many; None: the trial failed."""
    reason: str
    """The last failure."""

    def _describe(self) -> str:
        name = _name(self.breaker, self.key)
        why = (
            "its trial failed"
            if self.failures is None
            else f"after {plural(self.failures, 'failure')}"
        )
        return f"{name} is open for {words(self.for_s)}, {why}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(Event):
    """The trial of a breaker has succeeded: the jobs that waited for it start."""

    breaker: str
    """Name of the breaker."""
    key: str | None
    """The key whose jobs waited; None: the breaker has no keys."""

    def _describe(self) -> str:
        return f"{_name(self.breaker, self.key)} is closed: its trial succeeded"


def _name(breaker: str, key: str | None) -> str:
    return f"breaker {breaker}" if key is None else f"breaker {breaker} {key}"
