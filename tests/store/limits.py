"""One session that uses rate limits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from psycopg.rows import TupleRow

from rota.store import ops
from tests.store.work import Connection, Hand, insert

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Limits:
    """One session that uses limits. The jobs of its type `t` have the limit `smtp`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.hand = Hand(connection, types=["t", "u"])

    def begin(self) -> Limits:
        """Declare the type: jobs say their key and cost. The clock stands still from now on."""
        self.freeze(BEGINNING)
        asks_from = {"limit": {"argument": "key", "default": "none"}, "cost": {"argument": "cost"}}
        self.connection.execute(
            "insert into rota.job_type (name, rate_limit, asks_from) values ('t', 'smtp', %s)",
            [json.dumps(asks_from)],
        )
        return self

    def declare(
        self, name: str = "smtp", *, release: str = "r1", is_deploy: bool = True, **changes: Any
    ) -> None:
        """Declare a limit, by default of a start every 6 s with a burst of 1."""
        figures = {"name": name, "starts": 10, "per_s": 60, "burst": 1, "keyed": False, **changes}
        limits = msgspec.json.encode([figures]).decode()
        self.hand.run(ops.declare_limits(limits, release, is_deploy=is_deploy))

    def insert(self, count: int = 1, *, asks: Any = None, **given: Any) -> list[int]:
        """Insert jobs; what names no column is an argument of theirs."""
        names = {"job_type", "queue", "priority"} & given.keys()
        columns = {name: given.pop(name) for name in names}
        meta = json.dumps({"rota.asks": asks} if asks else {})
        payload = json.dumps({"key": "", **given})
        return insert(self.connection, count, payload=payload, meta=meta, **columns)

    def claim(self, limit: int = 100) -> dict[int, float]:
        """The jobs that a worker claims, in their order, and in how many seconds each may begin."""
        claimed, none = self.hand.claim(limit), ops.Start("", 0.0, 0.0)
        return {job.id: claimed.starts.get(job.id, none).in_s for job in claimed.jobs}

    def claim_in_sql(self, limit: int = 100) -> dict[int, float]:
        """The same of a worker in SQL: they begin at once."""
        claim = "select id from rota.claim('default', '{t}', 'sql', %s)"
        return {job: 0.0 for (job,) in self.rows(claim, limit)}

    def take(self, count: int = 1, *, key: str | None = None) -> bool:
        return self.hand.run(ops.take_starts("smtp", key, count))

    def delay(self, for_s: float) -> None:
        self.rows("select rota.worker_limit_delay('smtp', null, make_interval(secs => %s))", for_s)

    def freeze(self, at: datetime) -> None:
        """Let it be this time, by the database's clock, until it is set again."""
        self.now = at
        self.connection.execute(
            "create or replace function rota.clock() returns timestamptz language sql stable "
            f"as $$select timestamptz '{at.isoformat()}'$$;"
            "create or replace function rota.moment() returns timestamptz language sql "
            "as 'select rota.clock()'"
        )

    def wait(self, s: float) -> None:
        """Let so much time pass."""
        self.freeze(self.now + timedelta(seconds=s))

    def replan(self) -> TupleRow:
        """A pass of upkeep: for how many keys jobs wait, and how many it moved."""
        [counts] = self.rows("select keys, moved from rota.limits_replan(null, 1000, null)")
        return counts

    def turns(self) -> list[float]:
        """In how many seconds those are due that were put off, in the order of their turns."""
        due_in_s = "extract(epoch from run_at - rota.clock())::float8"
        query = f"select {due_in_s} from rota.job where waits_for ~ '^limit' order by run_at, id"
        return [due for (due,) in self.rows(query)]

    def rows(self, query: str, *params: object) -> list[TupleRow]:
        return self.connection.execute(query.encode(), params or None).fetchall()

    def value(self, query: str, *params: object) -> Any:
        return self.rows(query, *params)[0][0]
