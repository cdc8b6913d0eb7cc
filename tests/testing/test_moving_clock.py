"""The clocks of a harness: the database's and Python's, and the schedules on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.testing import Harness, moving_clock
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def app(database: str) -> rota.App:
    return rota.App(database, release="1")


@pytest.fixture(params=["database", "connection"])
def harness(app: rota.App, database: str, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """A harness on a database, and one on a connection."""
    if request.param == "database":
        with Harness(app) as harness:
            yield harness
        return
    with psycopg.connect(database) as connection:
        with Harness(app, connection=connection) as harness:
            yield harness
        connection.rollback()


def ticks(app: rota.App, schedule: str) -> list[tuple[datetime | None, datetime]]:
    """The ticks of a schedule, each with when its job was enqueued."""
    return [(run.scheduled_for, run.enqueued_at) for run in reversed(app.schedules.runs(schedule))]


@rule("M82")
def test_schedules_fire_on_the_way_each_tick_at_its_own_moment(
    app: rota.App, harness: Harness
) -> None:
    ran: list[datetime | None] = []

    @app.job("report", takes_context=True)
    def report(context: rota.Context) -> None:
        ran.append(context.scheduled_for)

    app.schedule("daily", "0 8 * * *", report.new(), overlap="allow")
    app.schedule("weekly", "0 9 * * 3", report.new(), overlap="allow")
    harness.freeze(NOON)
    app.sync()
    harness.advance("3d")
    days = [NOON.replace(hour=8) + timedelta(days=number) for number in (1, 2, 3)]
    assert ticks(app, "daily") == [(day, day) for day in days]
    wednesday = NOON.replace(day=3, hour=9)
    assert ticks(app, "weekly") == [(wednesday, wednesday)]
    assert ran == [], "jobs run when they are drained"
    assert harness.drain().succeeded == 4
    assert ran == [days[0], days[1], wednesday, days[2]]


def test_a_retry_waits_for_the_clock(app: rota.App, harness: Harness) -> None:
    @app.job("fail", retry=rota.Fixed("1h"), max_attempts=2)
    def fail() -> None:
        raise ValueError("no")

    fail.enqueue()
    assert harness.drain().failed == 1
    assert harness.drain().performed == []
    harness.advance("2h")
    assert harness.drain().dead == 1


def test_python_sees_the_time_of_the_database(app: rota.App, harness: Harness) -> None:
    seen: list[datetime] = []

    @app.job("look")
    def look() -> None:
        seen.append(datetime.now(UTC))

    assert harness.freeze(NOON) == NOON
    job = look.enqueue()
    assert datetime.now(UTC) == NOON
    harness.perform(job.id)
    assert seen == [NOON]
    assert app.get(job.id).created_at == NOON
    assert harness.advance("7d") == NOON + timedelta(days=7) == datetime.now(UTC)
    harness.close()
    assert datetime.now(UTC) != NOON + timedelta(days=7)


def test_a_clock_that_was_advanced_runs_on(app: rota.App, harness: Harness) -> None:
    before = time.time()
    at = harness.advance(timedelta(days=1))
    assert at.timestamp() - before >= 86_400
    later = harness.freeze()
    assert later > at
    assert later - at < timedelta(minutes=5)


def test_what_is_no_move_is_refused(app: rota.App, harness: Harness) -> None:
    with pytest.raises(rota.UsageError, match="aware datetime"):
        harness.freeze(datetime(2026, 1, 14))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(rota.UsageError, match="by"):
        harness.advance("-1d")
    with pytest.raises(rota.UsageError):
        harness.advance("soon")


def test_a_move_that_fails_on_its_way_leaves_no_moved_clock_behind(
    app: rota.App, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_clock, "TICKS_MAX", 3)

    @app.job("refresh")
    def refresh() -> None: ...

    app.schedule("often", "*/10 * * * *", refresh.new(), overlap="allow")
    app.sync()
    with Harness(app) as harness, pytest.raises(rota.UsageError, match="more than 3 ticks"):
        harness.advance("1h")
    [(drift,)] = connection.execute("select rota.clock() - statement_timestamp()").fetchall()
    assert not drift


def test_a_move_does_not_change_the_time_zone_of_the_process(harness: Harness) -> None:
    zone = time.tzname
    for name in ("America/New_York", "Asia/Kolkata"):
        harness.freeze(datetime(2027, 3, 1, 12, tzinfo=ZoneInfo(name)))
        assert time.tzname == zone
    harness.advance("1d")
    assert time.tzname == zone


def test_the_first_freeze_and_one_that_goes_back_set_the_scene(
    app: rota.App, harness: Harness
) -> None:
    @app.job("refresh")
    def refresh() -> None: ...

    app.schedule("daily", "0 8 * * *", refresh.new(), overlap="allow")
    app.sync()
    for scene in (NOON, NOON - timedelta(days=2_000)):
        enqueued = len(ticks(app, "daily"))
        harness.freeze(scene)
        assert len(ticks(app, "daily")) == enqueued, "nothing fires"
        harness.freeze(scene + timedelta(days=2))
        assert [tick for tick, _ in ticks(app, "daily")][enqueued:] == [
            scene.replace(hour=8) + timedelta(days=day) for day in (1, 2)
        ]
