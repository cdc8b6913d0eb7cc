"""What the gate of breakers remembers, by a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rota.worker.gates.breaker import FRESH_S, BreakerGate, BreakerPass
from tests.support.rules import rule


@rule("M63")
async def test_a_slow_look_forgets_no_breaker_of_its_own_batch() -> None:
    now = 100.0

    async def look_slowly(operation: Any) -> dict[Any, Any]:
        nonlocal now
        operation.close()
        now += 2 * FRESH_S
        return {}

    parts: Any = SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: now))
    link: Any = SimpleNamespace(run=look_slowly)
    gate = BreakerGate(parts, link)
    for n in range(10_001):
        gate._note(("shop", f"once {n}"), None, now)
    gate._note(("shop", "fresh"), None, now)
    batch: list[Any] = [
        SimpleNamespace(ticket=SimpleNamespace(breaker=BreakerPass(("shop", key))))
        for key in ("fresh", "stale")
    ]
    assert await gate.ask(batch) == {}
