"""A scheduler reduced to its passes, and a clock that only a test moves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rota.observe.events import Bus, Event
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep.scheduler import Scheduler
from tests.store.work import Connection


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def set_clock(connection: Connection, when: str | datetime, schema: str = "rota") -> None:
    """Let the database's clock stand at an instant; a text is in UTC."""
    instant = f"{when}+00" if isinstance(when, str) else when.isoformat()
    _replace_clock(connection, f"'{instant}'::timestamptz", schema)


def move_clock(connection: Connection, by: str) -> None:
    """Let the database's clock go ahead of the server's by an interval."""
    _replace_clock(connection, f"pg_catalog.statement_timestamp() + interval '{by}'")


def _replace_clock(connection: Connection, says: str, schema: str = "rota") -> None:
    connection.execute(
        f"create or replace function {schema}.clock() returns timestamptz language sql stable "
        f"parallel safe as $$ select {says} $$".encode()
    )


def put(
    connection: Connection, name: str = "s", cron: str | None = "0 * * * *", **columns: Any
) -> None:
    """Insert a schedule as plain SQL does."""
    given = {"name": name, "job_type": "t", "cron": cron, **columns}
    values = ", ".join(f"%({column})s" for column in given)
    connection.execute(
        f"insert into rota.schedule ({', '.join(given)}) values ({values})".encode(), given
    )


def ticks(connection: Connection, name: str = "s") -> list[tuple[str, Any]]:
    """Return the runs of a schedule in order: the tick (hour:minute in UTC) and the job status."""
    rows = connection.execute(
        "select to_char(scheduled_for at time zone 'UTC', 'HH24:MI'), status from rota.runs where "
        "schedule = %s order by job",
        [name],
    )
    return rows.fetchall()


def fact(connection: Connection, column: str, name: str = "s") -> Any:
    row = connection.execute(
        f"select {column} from rota.schedule where name = %s".encode(), [name]
    ).fetchone()
    assert row is not None
    return row[0]


class Passes:
    """`async with Passes(url) as passes: await passes()` does one pass after the other, on a
    connection of its own.
    """

    def __init__(self, url: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.events: list[Event] = []
        bus = Bus()
        bus.on(Event, self.events.append)
        self.link = StoreLink(Database(url), "test")
        self.scheduler = Scheduler(bus, self.link, clock)

    async def __aenter__(self) -> Passes:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.close()

    async def __call__(self) -> float | None:
        return await self.scheduler.tick()

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
