"""Every setting, with its unit and default."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rota.errors import ConfigurationError

LEASE_S = 120.0
"""How long a claim holds a job unless its type or App says otherwise: 5 to 20 times a typical run, renewed while the handler works."""

SLOTS = 10
"""Jobs that a worker runs at once over all its queues, unless queues are given slots of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How one worker process works."""

    queues: dict[str, int] | None = None
    """Slots by queue; None: every queue of the App's types plus `default`, sharing `slots`."""
    slots: int = SLOTS
    """Jobs at once over all queues. Only where `queues` is None."""
    drain: bool = False
    """Stop when nothing is due any more."""
    drain_for_s: float | None = None
    """Stop claiming after so many seconds, in a drain."""
    grace_s: float = 30.0
    """How long running handlers may go on after the order to stop, before they are stopped and their jobs handed back."""
    poll_s: float = 0.8
    """The longest pause between two claims of an idle worker: a job is picked up within it also when no bell rings."""
    poll_least_s: float = 0.004
    """The first pause after work ran out; it doubles up to `poll_s`."""
    buffer_s: float = 1.0
    """A claimed job that has waited so long for a slot goes back, for another worker to take."""

    def __post_init__(self) -> None:
        for queue, slots in (self.queues or {}).items():
            if not 1 <= len(queue) <= 100:
                raise ConfigurationError(f"queue name {queue!r} must be 1 to 100 characters")
            _check_slots(slots, f"queue {queue!r}")
        _check_slots(self.slots, "slots")
        if self.queues is not None and not self.queues:
            raise ConfigurationError("queues is empty: name at least one, or leave it out for all queues of the App's types")
        if self.grace_s < 0:
            raise ConfigurationError(f"the grace period must not be negative, not {self.grace_s:g} s")


def _check_slots(slots: object, what: str) -> None:
    if not isinstance(slots, int) or not 1 <= slots <= 10_000:
        raise ConfigurationError(f"{what}: slots must be a whole number from 1 to 10,000, not {slots!r}")


def given_url(url: str | None) -> str | None:
    """Return the database URL given in code or in the environment; None means the embedded server.

    Raises:
        ConfigurationError: only DATABASE_URL is set. It is never used by itself: it may be another application's.
    """
    chosen = url or os.environ.get("ROTA_DATABASE_URL")
    if chosen:
        return chosen
    if os.environ.get("DATABASE_URL"):
        raise ConfigurationError(
            "DATABASE_URL is set but ROTA_DATABASE_URL is not: Rota uses no database that it was not told to; "
            'set ROTA_DATABASE_URL to it (ROTA_DATABASE_URL="$DATABASE_URL") or pass the URL to rota.App'
        )
    return None
