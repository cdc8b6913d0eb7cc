"""What a check reports, and the thresholds it measures by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Literal

Facts = dict[str, Any]


class Level(StrEnum):
    BAD = "bad"
    """Jobs do not run, or soon will not."""
    WARN = "warn"
    """It works, but a person should look at it."""
    SKIPPED = "skipped"
    """The check could not be made."""
    FOLLOWS = "follows"
    """It would be bad or a warning, but another finding names its cause."""
    OK = "ok"


Cause = Literal[
    "other schema", "read-only server", "pooler", "role of workers", "old snapshot",
    "restored copy", "no worker", "unserved queue", "not synced", "unknown type",
    "unread payload", "missing key", "refusals", "pause",
]  # fmt: skip
"""What can be the matter so that several checks notice it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it."""

    level: Level
    what: str
    what_to_do: str = ""
    cause: Cause | None = None
    """What this finding shows, if others may follow from it."""
    because: tuple[Cause, ...] = ()
    """Causes from which this finding follows, if another check shows it: the first counts."""
    follows_from: str | None = None
    """The name of the check that shows the cause."""

    @property
    def is_sound(self) -> bool:
        return self.level in (Level.OK, Level.SKIPPED)


def attribute(found: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return the findings with a single finding for each cause, as severe as its followers."""
    shown = {
        finding.cause: name
        for name, finding in found.items()
        if finding.cause is not None and not finding.is_sound
    }

    def find_root(name: str) -> str:
        because = () if found[name].is_sound else found[name].because
        cause = next((shown[other] for other in because if other in shown), None)
        return name if cause is None else find_root(cause)

    roots = {name: find_root(name) for name in found}
    attributed = {}
    for name, finding in found.items():
        if roots[name] != name:
            attributed[name] = replace(finding, level=Level.FOLLOWS, follows_from=roots[name])
        elif any(root == name and found[other].level is Level.BAD for other, root in roots.items()):
            attributed[name] = replace(finding, level=Level.BAD)
        else:
            attributed[name] = finding
    return attributed


ok = partial(Finding, Level.OK)
warn = partial(Finding, Level.WARN)
bad = partial(Finding, Level.BAD)
skip = partial(Finding, Level.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The values from which a figure becomes a finding: docs/reference/checks-and-alerts.md."""

    round_trip_s: float = 0.05
    timeout_s: float = 10.0
    """How long a transaction of Rota's may need on a slow day."""
    skew_s: float = 5.0
    snapshot_s: tuple[float, float] = (600.0, 3600.0)
    """The first value is a warning, the second is bad; so with all pairs below."""
    snapshot_xids: tuple[int, int] = (1_000_000, 20_000_000)
    """Transactions since a holder began whose age in seconds is unknown."""
    dead_rows: int = 50_000
    dead_share: float = 0.5
    """A table gets a warning above `dead_rows` plus this share of its live rows."""
    partition_days: tuple[int, int] = (6, 1)
    """Days ahead without a partition: a gap in the first is a warning, in the second bad."""
    connections_share: tuple[float, float] = (0.8, 0.95)
    due_s: tuple[float, float] = (300.0, 3600.0)
    alone_s: float = 120.0
    """How long due jobs may wait while no worker is alive: cron starts one each minute."""
    cap_s: float = 600.0
    """How long the next job of a full concurrency limit may wait."""
    backlog_s: float = 3600.0
    """How far ahead the last job that waits for a rate limit may be due."""
    unread_s: float = 600.0
    """How long jobs may wait for a release that can read their payloads: a deploy is that quick."""
    refused_s: float = 60.0
    """How long the database may refuse what a worker does: a lock is held that long."""
    open_s: float = 900.0
    waiting_share: float = 0.2
    workers: int = 12
    single_s: float = 60.0
    lane_jobs: int = 1_000
    """Due jobs of a lane that wait behind its running job; not more than the check counts."""
    lane_s: float = 60.0
    limit_rate: float = 4_000.0
    live_jobs: int = 1_000_000
    uncounted: int = 100_000
    """Changes of batches that are not counted yet; not more than the check counts."""
    teams: int = 3
    history_bytes: int = 100 * 1024**3
    updates_a_job: float = 10.0
    reporting: int = 200


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
