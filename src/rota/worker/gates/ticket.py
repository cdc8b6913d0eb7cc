"""What the gates that ask the database know of one attempt."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from rota.model.outcome import PutBack

if TYPE_CHECKING:
    from rota.model.outcome import End
    from rota.store.ops import LimitPlace, Reservation
    from rota.worker.gates.breaker import BreakerPass


class Ticket:
    """The ticket of an attempt whose type has a rate limit or a breaker. Times are monotonic
    seconds. Written by the worker's loop; other threads read `begin_by` and `waits_for`."""

    __slots__ = (
        "asks_again",
        "begin_by",
        "breaker",
        "is_held",
        "is_prepared",
        "is_start_recorded",
        "let_in_at",
        "limit",
        "reservation",
        "slot_at",
        "waits_for",
    )

    def __init__(self) -> None:
        self.breaker: BreakerPass | None = None
        """What the gate of breakers knows of it; None: its type has no breaker."""
        self.is_prepared = False
        """Whether the gates have read its arguments."""
        self.asks_again = False
        """Whether a gate wants to be asked at once, whatever it answered before."""
        self.is_held = False
        """Whether the gates have answered that it must wait. Written by its slot group."""
        self.is_start_recorded = False
        self.let_in_at = 0.0
        """When it went into the buffer; 0 before."""
        self.limit: tuple[LimitPlace, int] | None = None
        """Its rate limit and key, and what it costs there; None: its type has none."""
        self.reservation: Reservation | None = None
        """Its start as reserved; None: not yet, or not any more."""
        self.slot_at = 0.0
        """The time of its slot."""
        self.begin_by = inf
        """The latest time at which it may begin without another question to the gates."""
        self.waits_for: str | None = None
        """What it is put back for if it begins too late."""

    def find_obstacle(self, now: float) -> End | None:
        """Return why the handler may not take its first step; None when it may."""
        if now <= self.begin_by:
            return None
        return PutBack(self.waits_for, "it would have begun too late after its turn")
