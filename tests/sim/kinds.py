"""The job types of a simulated world."""

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
    "row": {"ordered": rota.Ordered()},
    "keyed": {},
    "pending": {"unique": rota.Unique(scope="pending", on_duplicate="replace")},
    "after": {},
    "pays": {},
    "limited": {"rate_limit": rota.RateLimit("r", 20, "10s", burst=5)},
    "capped": {"max_running": 3},
    "calls": {
        "breaker": rota.Breaker("b", failures=3, open_for="20s", max_open="20s"),
        "max_attempts": 100,
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
    "row": 1,
    "limited": 2,
    "keyed": 2,
    "pending": 2,
    "urgent": 2,
    "pays": 2,
    "capped": 2,
    "calls": 2,
    "parent": 1,
    "once": 1,
    "shaped": 1,
}
"""How often a producer takes each."""
