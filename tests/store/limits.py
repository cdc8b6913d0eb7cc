"""One session that uses rate limits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import psycopg
from psycopg.rows import TupleRow

from rota.store import ops
from rota.store.ops import NoSlot, Reservation, StartRequest
from tests.store.work import Hand

Connection = psycopg.Connection[TupleRow]


class Limits:
    """One session that uses limits."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.hand = Hand(connection)
        self._jobs = 1_000_000

    def declare(
        self, name: str = "smtp", *, release: str = "r1", is_deploy: bool = True, **changes: Any
    ) -> None:
        """Declare a limit, by default of 100 a minute with a burst of 10."""
        figures = {"name": name, "starts": 100, "per_s": 60, "burst": 10, "keyed": False, **changes}
        limits = msgspec.json.encode([figures]).decode()
        self.hand.run(ops.declare_limits(limits, release, is_deploy=is_deploy))

    def reserve(
        self, count: int = 1, *, key: str = "", cost: int = 1, priority: int = 0, **more: Any
    ) -> list[Reservation | NoSlot]:
        """Reserve for jobs that are in no table."""
        first, self._jobs = self._jobs, self._jobs + count
        asked = [
            StartRequest(first + n, ("smtp", key), cost, priority, **more) for n in range(count)
        ]
        return list(self.hand.run(ops.reserve_starts(asked)).values())

    def waits(self, count: int, **more: Any) -> list[float]:
        """The seconds until the slots of those that get one."""
        return [one.wait_s for one in self.reserve(count, **more) if isinstance(one, Reservation)]

    def take(self, count: int = 1, *, key: str | None = None) -> bool:
        return self.hand.run(ops.take_starts("smtp", key, count))

    def freeze(self, at: datetime) -> None:
        """Let it be this time, by the database's clock, until it is set again."""
        self.connection.execute(
            "create or replace function rota.clock() returns timestamptz language sql stable "
            f"as $$select timestamptz '{at.isoformat()}'$$"
        )

    def replan(self) -> TupleRow | None:
        """A pass of upkeep: for how many keys jobs wait, and how many it moved."""
        return self.connection.execute(
            "select keys, moved from rota.limits_replan(null, 1000, null)"
        ).fetchone()

    def value(self, query: str, *params: object) -> Any:
        row = self.connection.execute(query.encode(), params or None).fetchone()
        return None if row is None else row[0]
