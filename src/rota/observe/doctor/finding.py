"""What the doctor says, and by what measure. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How grave it is."""

    BAD = "bad"
    """Jobs do not run, or soon will not."""
    WARN = "warn"
    """It works, and somebody should look."""
    SKIPPED = "skipped"
    """It could not be looked at."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found."""

    level: Level
    what: str
    what_to_do: str = ""


def ok(what: str) -> Finding:
    """Nothing to do."""
    return Finding(Level.OK, what)


def warn(what: str, what_to_do: str) -> Finding:
    """Somebody should look."""
    return Finding(Level.WARN, what, what_to_do)


def bad(what: str, what_to_do: str) -> Finding:
    """Somebody must do something."""
    return Finding(Level.BAD, what, what_to_do)


def skip(what: str, what_to_do: str = "") -> Finding:
    """Not looked at."""
    return Finding(Level.SKIPPED, what, what_to_do)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a figure becomes a finding; docs/doctor.md says why it is that one."""

    round_trip_s: float = 0.05
    skew_s: float = 5.0
    snapshot_s: tuple[float, float] = (600.0, 3600.0)
    """From here on it is worth a warning, and bad. The same for all pairs below."""
    snapshot_xids: tuple[int, int] = (1_000_000, 20_000_000)
    """For holders that do not say since when."""
    dead_rows: int = 50_000
    dead_share: float = 0.5
    """Dead rows are worth a warning when they are more than that many and this share of the live ones on top."""
    partition_days: tuple[int, int] = (6, 1)
    """Days ahead: fewer than the first is worth a warning, fewer than the second is bad."""
    connections_share: tuple[float, float] = (0.8, 0.95)
    due_s: tuple[float, float] = (300.0, 3600.0)
    alone_s: float = 120.0
    """Due jobs may wait so long while no worker is alive: cron starts one each minute."""
    waiting_share: float = 0.2
    """Of Rota's sessions, those that wait for a lock."""
    workers: int = 12
    single_s: float = 60.0
    live_jobs: int = 1_000_000
    crews: int = 3
    history_bytes: int = 100 * 1024**3
    updates_a_job: float = 10.0
    reporting: int = 200


def size(count: float) -> str:
    """Bytes to read."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
