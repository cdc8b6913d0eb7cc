"""How long the parts of a soak take, by how long it is to take in all."""

from __future__ import annotations

from dataclasses import dataclass

DAYS_KEPT = 3
"""How long history and all else is kept, by the database's clock."""
KEYS_DAYS = 5
"""How long a key is held after the success of its job; what enqueues with it has ended by then."""
SETTLED_DAYS = KEYS_DAYS + 2
"""From then on tables are as full as they get: a day goes when it is over, at the next pass."""
ROUND_DAYS = 2.5
"""Days of a round. It is judged before anything of it is deleted."""
STEPS = 4
"""Moves of the clock in a day."""
DAY_S = (6.0, 120.0)
HARM_S = (6.0, 90.0)
SAMPLE_S = (2.0, 60.0)
SAMPLES = 75
"""Samples of a run, if they are not less than 60 s apart: some in each day of the database's clock.
With one a day a line through them would show at what time of the day they were taken."""
SETTLES_S = 120
"""A shorter run is over before its processes have settled: growth is shown, and not judged."""
MEASURED_S = 600
"""In a run as long as this, each figure that is judged has samples enough."""
WARM_UP = 0.25
"""The share of the run that no growth is judged by."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of the machine's clock."""

    total_s: float

    @property
    def day_s(self) -> float:
        """How long a day of the database's clock takes."""
        return _within(self.total_s / 30, DAY_S)

    @property
    def round_s(self) -> float:
        """How long jobs are enqueued until the ledger is judged and emptied."""
        return min(ROUND_DAYS * self.day_s, self.total_s)

    @property
    def harm_s(self) -> float:
        """Time between two kills or deploys."""
        return _within(self.total_s / 40, HARM_S)

    @property
    def sample_s(self) -> float:
        """Time between two samples."""
        return _within(self.total_s / SAMPLES, SAMPLE_S)

    @property
    def warm_up_s(self) -> float:
        """From then on growth is judged: processes have settled."""
        return WARM_UP * self.total_s


def _within(seconds: float, bounds: tuple[float, float]) -> float:
    return min(max(seconds, bounds[0]), bounds[1])
