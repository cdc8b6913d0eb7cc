"""How much is measured: in full, or just enough to see that everything works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes and times of all parts."""

    jobs: int
    """No-op jobs per drain."""
    rounds: int
    without_s: float
    """At full speed without an old snapshot."""
    snapshot_s: float
    """At full speed with one."""
    steady_s: float
    """At a steady rate with an old snapshot."""
    window_s: float
    """The length of the first and of the last part of the steady time."""
    enqueue_s: float
    """For each way to enqueue."""
    pick_up_s: float
    cost_jobs: int
    idle_s: float
    sparse_jobs: int
    """Single jobs for an idle worker."""
    spike_jobs: int
    spike_work: int
    """Jobs for each worker beside a spike."""
    spike_rounds: int
    """Workers on each table, in turns with those on the other."""
    spike_claims: int
    """Claims by hand beside a spike."""
    search_rows: int
    """Rows of history beside which jobs are searched for."""
    limit_s: int
    """The whole benchmark ends after this, whatever is left."""


FULL = Scale(
    jobs=200_000,
    rounds=5,
    without_s=60,
    snapshot_s=180,
    steady_s=180,
    window_s=30,
    enqueue_s=4,
    pick_up_s=20,
    cost_jobs=200_000,
    idle_s=60,
    sparse_jobs=10,
    spike_jobs=1_000_000,
    spike_work=50_000,
    spike_rounds=2,
    spike_claims=300,
    search_rows=10_000_000,
    limit_s=1_200,
)
QUICK = Scale(
    jobs=40_000,
    rounds=2,
    without_s=8,
    snapshot_s=12,
    steady_s=16,
    window_s=5,
    enqueue_s=1,
    pick_up_s=4,
    cost_jobs=40_000,
    idle_s=8,
    sparse_jobs=3,
    spike_jobs=50_000,
    spike_work=5_000,
    spike_rounds=1,
    spike_claims=100,
    search_rows=2_000_000,
    limit_s=180,
)
