"""The job types of a simulated world, and what a number says of a job."""

from __future__ import annotations

from typing import Any

import rota

LASTS_S = (0.01, 0.1, 1, 1, 5, 40)
"""How long a handler works: one of these."""
RETRY = rota.Fixed("3s")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "urgent": {"priority": 20},
    "flaky": {"max_attempts": 4, "retry": RETRY},
    "lane": {"ordered": rota.Ordered(capacity=2)},
    "row": {"ordered": rota.Ordered(), "max_attempts": 3, "retry": RETRY},
    "halt": {"ordered": rota.Ordered(after_death="halt"), "max_attempts": 1},
    "keyed": {"unique": rota.Unique()},
    "live": {"unique": rota.Unique(scope="live")},
    "pending": {"unique": rota.Unique(scope="pending", on_duplicate="replace")},
    "late": {"expires": "2s", "on_expired": "drop"},
    "after": {},
    "pays": {"retry": RETRY},
    "writes": {"retry": RETRY},
    "limited": {"rate_limit": rota.RateLimit("r", 4, "10s", burst=2)},
    "capped": {"max_running": 3},
    "calls": {
        "breaker": rota.Breaker("b", failures=3, open_for="20s", max_open="20s"),
        "max_attempts": 100,
        "retry": RETRY,
    },
    "many": {
        "ordered": rota.Ordered(capacity=3),
        "chunk": rota.Chunk(3, wait="0.5s"),
        "retry": RETRY,
    },
    "parent": {},
    "child": {"max_attempts": 2, "retry": RETRY},
    "once": {"on_lost": "dead"},
    "shaped": {},
}
"""The options of each job type."""
DRAWN = {
    "plain": 4,
    "flaky": 2,
    "lane": 2,
    "row": 2,
    "halt": 1,
    "limited": 3,
    "keyed": 1,
    "live": 2,
    "pending": 2,
    "urgent": 2,
    "late": 2,
    "pays": 2,
    "writes": 2,
    "capped": 2,
    "calls": 4,
    "many": 2,
    "parent": 1,
    "once": 1,
    "shaped": 1,
}
"""How often a producer takes each."""
BY_SQL = ("lane", "plain")
"""The types that a worker in SQL takes, too."""


def group_of(kind: str, n: int) -> str | None:
    """The ordered group of a job."""
    return f"{kind} {n % 3}" if "ordered" in KINDS[kind] else None


def key_of(kind: str, n: int) -> str | None:
    """The idempotency key of a job."""
    return f"k{n % 7}" if "unique" in KINDS[kind] else None
