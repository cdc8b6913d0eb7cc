"""What the gate of breakers remembers, by a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rota.observe.events import Bus
from rota.runtime.clock import Clock
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

    finisher: Any = None
    link: Any = SimpleNamespace(run=look_slowly)
    gate = BreakerGate(Bus(), Clock(lambda: now), link, (), finisher)
    for n in range(10_001):
        gate._note(("shop", f"once {n}"), None, now)
    gate._note(("shop", "fresh"), None, now)
    batch: list[Any] = [object(), object()]
    for attempt, key in zip(batch, ("fresh", "stale"), strict=True):
        gate._passes[attempt] = BreakerPass(("shop", key))
    assert await gate.ask(batch) == {}
