"""Schedules that code declares, through deploys and rollbacks, beside those that people make."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from rota.observe.events import ScheduleDisabled
from rota.store import ops
from tests.store.planned import Passes, at, fact, put, set_clock, ticks
from tests.store.work import Connection, Hand
from tests.support.rules import rule

NOON = "2026-03-01 12:00:00"


def declared(name: str = "s", cron: str | None = "0 2 * * *", **facts: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "name": name,
        "job_type": "t",
        "payload": {},
        "cron": cron,
        "timezone": "UTC",
        "catch_up": "latest",
        "overlap": "skip",
    }
    return {**given, **facts}


def start(
    connection: Connection,
    release: str,
    *schedules: dict[str, Any],
    worker: str | None = None,
    deploy: bool = False,
) -> int:
    """A worker of a release starts, as a worker does; with `deploy` only `rota sync` is run."""
    count = Hand(connection).run(
        ops.declare_schedules(json.dumps(schedules), release, [], is_deploy=deploy)
    )
    if not deploy:
        Hand(connection, name=worker or release, release=release).send_heartbeat()
    return count


def stop(connection: Connection, worker: str) -> None:
    Hand(connection).run(ops.stop(worker))


def send_heartbeats(connection: Connection, *releases: str) -> None:
    for release in releases:
        Hand(connection, name=release, release=release).send_heartbeat()


def disable(connection: Connection) -> list[str]:
    return Hand(connection).run(ops.disable_schedules())


@rule("M10", "M82")
async def test_a_deploy_keeps_an_unchanged_schedule_s_next_tick_and_its_ticks_that_are_due(
    database: str, connection: Connection
) -> None:
    set_clock(connection, NOON)
    start(connection, "1", declared(cron="0 * * * *"))
    async with Passes(database) as passes:
        await passes()
        assert fact(connection, "next_run_at") == at("2026-03-01 13:00")
        stop(connection, "1")
        set_clock(connection, "2026-03-01 13:10:00")
        start(connection, "2", declared(cron="0 * * * *", payload={"a": 1}))
        await passes()
    assert ticks(connection) == [("13:00", "queued")]
    assert connection.execute("select payload from rota.job").fetchone() == ({"a": 1},)
    assert (fact(connection, "origin"), fact(connection, "release")) == ("code", "2")


@rule("M82")
@pytest.mark.parametrize("changed", [{"cron": "30 2 * * *"}, {"timezone": "Europe/Stockholm"}])
async def test_a_changed_cron_expression_or_zone_counts_from_now(
    database: str, connection: Connection, changed: dict[str, str]
) -> None:
    set_clock(connection, NOON)
    start(connection, "1", declared(catch_up="all"))
    async with Passes(database) as passes:
        await passes()
        stop(connection, "1")
        set_clock(connection, "2026-03-03 12:00:00")
        start(connection, "2", declared(catch_up="all", **changed))
        await passes()
    assert ticks(connection) == []
    expected = "2026-03-04 02:30" if "cron" in changed else "2026-03-04 01:00"
    assert fact(connection, "next_run_at") == at(expected)


@rule("M87")
@pytest.mark.parametrize("origin", ["code", "api", "cli", "sql"])
def test_an_operator_s_pause_survives_deploys_also_when_the_code_takes_the_schedule_over(
    shared: Connection, origin: str
) -> None:
    if origin == "code":
        start(shared, "1", declared())
    else:
        put(shared, origin=origin)
    by = "rota" if origin == "code" else "ann"  # a person may be called so
    shared.execute("select rota.schedule_pause('s', 'the printer is broken', %s)", [by])
    start(shared, "2", declared(cron="30 4 * * *"))
    row = shared.execute(
        "select origin, cron, paused_by, paused_why, paused_at is not null from rota.schedule"
    ).fetchone()
    assert row == ("code", "30 4 * * *", by, "the printer is broken", True)


@rule("M87")
def test_a_declaration_lifts_a_pause_by_rota_itself_unless_a_person_has_taken_it_over(
    shared: Connection,
) -> None:
    set_clock(shared, NOON)
    start(shared, "1", declared("taken"), declared("left"))
    shared.execute(
        "select rota.schedule_refuse(name, next_run_at, since, 'it cannot be') from rota.schedule"
    )
    set_clock(shared, "2026-03-01 12:10:00")
    shared.execute(
        "update rota.schedule set paused_at = rota.clock(), paused_by = 'ann' where name = 'taken'"
    )
    start(shared, "2", declared("taken", "30 4 * * *"), declared("left"))
    assert (fact(shared, "paused_by", "taken"), fact(shared, "paused_by", "left")) == ("ann", None)
    assert fact(shared, "since", "left") == at(NOON)  # its ticks since then count as missed


@rule("M82")
def test_what_the_newest_release_no_longer_declares_is_disabled_after_an_hour_and_never_deleted(
    shared: Connection,
) -> None:
    set_clock(shared, NOON)
    start(shared, "1", declared(), declared("gone"))
    set_clock(shared, "2026-03-02 12:00:00")
    send_heartbeats(shared, "1")
    start(shared, "2", declared(), declared("new"))
    assert disable(shared) == []
    set_clock(shared, "2026-03-02 12:59:59")
    send_heartbeats(shared, "1", "2")
    assert disable(shared) == []
    set_clock(shared, "2026-03-02 13:00:01")
    send_heartbeats(shared, "1", "2")
    assert disable(shared) == ["gone"]
    assert disable(shared) == []
    assert [fact(shared, "disabled_at", name) for name in ("s", "gone", "new")] == [
        None,
        at("2026-03-02 13:00:01"),
        None,
    ]


@rule("M82")
async def test_a_disabled_schedule_enqueues_nothing_and_counts_from_now_when_it_is_declared_again(
    database: str, connection: Connection
) -> None:
    set_clock(connection, NOON)
    start(connection, "1", declared("gone", "0 * * * *", catch_up="all"))
    async with Passes(database) as passes:
        await passes()
        stop(connection, "1")
        start(connection, "2")
        set_clock(connection, "2026-03-01 13:30:00")
        passes.scheduler._disable_at = 0.0
        await passes()
        assert [event.schedule for event in passes.of(ScheduleDisabled)] == ["gone"]
        assert fact(connection, "disabled_at", "gone") is not None
        before = ticks(connection, "gone")
        set_clock(connection, "2026-03-01 20:10:00")
        await passes()
        start(connection, "3", declared("gone", "0 * * * *", catch_up="all"))
        await passes()
        assert ticks(connection, "gone") == before
        assert (
            fact(connection, "disabled_at", "gone"),
            fact(connection, "next_run_at", "gone"),
        ) == (None, at("2026-03-01 21:00"))


@rule("M82")
def test_of_two_releases_side_by_side_the_older_one_s_workers_change_nothing(
    shared: Connection,
) -> None:
    set_clock(shared, NOON)
    start(shared, "1", declared(cron="0 1 * * *"))
    set_clock(shared, "2026-03-01 12:10:00")
    send_heartbeats(shared, "1")
    start(shared, "2", declared(cron="0 2 * * *"))
    assert start(shared, "1", declared(cron="0 1 * * *"), worker="1 again") == 0
    assert (fact(shared, "cron"), fact(shared, "release")) == ("0 2 * * *", "2")


@rule("M82")
def test_a_roll_back_makes_the_old_release_the_newest_again(shared: Connection) -> None:
    set_clock(shared, NOON)
    start(shared, "1", declared(cron="0 1 * * *"), declared("old"))
    stop(shared, "1")
    set_clock(shared, "2026-03-01 12:10:00")
    start(shared, "2", declared(cron="0 2 * * *"), declared("new"))
    set_clock(shared, "2026-03-01 12:20:00")
    send_heartbeats(shared, "2")
    # While the last of release 2 are still up.
    start(shared, "1", declared(cron="0 1 * * *"), declared("old"))
    stop(shared, "2")
    assert fact(shared, "cron") == "0 1 * * *"
    set_clock(shared, "2026-03-01 13:15:00")
    send_heartbeats(shared, "1")
    assert disable(shared) == []
    set_clock(shared, "2026-03-01 13:20:01")
    send_heartbeats(shared, "1")
    assert disable(shared) == ["new"]


def drain(connection: Connection, release: str, *schedules: dict[str, Any]) -> list[str]:
    """Run the upkeep of a release's drain. Return the schedules that it disabled."""
    worker = uuid4().hex
    start(connection, release, *schedules, worker=worker)
    disabled = disable(connection)
    stop(connection, worker)
    return disabled


@rule("M80", "M82")
def test_with_drains_only_what_the_code_no_longer_declares_is_disabled_after_an_hour_too(
    shared: Connection,
) -> None:
    set_clock(shared, NOON)
    drain(shared, "1", declared(), declared("gone"))
    for minute in range(60):
        set_clock(shared, f"2026-03-01 13:{minute:02}:00")
        assert drain(shared, "2", declared()) == []
    set_clock(shared, "2026-03-01 14:00:00")
    assert drain(shared, "2", declared()) == ["gone"]


@rule("M80", "M82")
def test_drains_of_the_older_of_two_releases_change_nothing_until_a_rollback(
    shared: Connection,
) -> None:
    set_clock(shared, NOON)
    drain(shared, "1", declared(cron="0 1 * * *"))
    for minute in range(1, 20, 5):
        set_clock(shared, f"2026-03-01 12:{minute:02}:00")
        drain(shared, "2", declared(cron="0 2 * * *"))
        set_clock(shared, f"2026-03-01 12:{minute:02}:30")
        drain(shared, "1", declared(cron="0 1 * * *"))
        assert fact(shared, "release") == "2"
    for minute, newest in ((25, "2"), (27, "1"), (28, "1")):
        set_clock(shared, f"2026-03-01 12:{minute:02}:00")
        drain(shared, "1", declared(cron="0 1 * * *"))
        assert fact(shared, "release") == newest
    assert fact(shared, "cron") == "0 1 * * *"


@rule("M82")
def test_a_withdrawn_canary_leaves_the_release_at_work_the_newest(shared: Connection) -> None:
    set_clock(shared, NOON)
    start(shared, "1", declared(), declared("old"))
    set_clock(shared, "2026-03-01 12:10:00")
    send_heartbeats(shared, "1")
    start(shared, "2", declared())
    stop(shared, "2")
    set_clock(shared, "2026-03-01 14:00:00")
    send_heartbeats(shared, "1")
    start(shared, "1", declared(), declared("old"), worker="1 again")
    assert (disable(shared), fact(shared, "release")) == ([], "1")


@rule("M82")
def test_a_release_without_a_name_disables_nothing(shared: Connection) -> None:
    set_clock(shared, NOON)
    start(shared, "1", declared("gone"))
    stop(shared, "1")
    start(shared, "unknown", declared())
    set_clock(shared, "2026-03-02 12:00:00")
    send_heartbeats(shared, "unknown")
    assert (disable(shared), fact(shared, "origin")) == ([], "code")


@rule("M82")
def test_a_deploy_that_is_synchronised_before_its_workers_start_is_not_undone_meanwhile(
    shared: Connection,
) -> None:
    set_clock(shared, NOON)
    start(shared, "1", declared())
    set_clock(shared, "2026-03-03 12:00:00")
    send_heartbeats(shared, "1")
    assert start(shared, "2", declared(cron="0 3 * * *"), declared("new"), deploy=True) == 2
    assert disable(shared) == []
    assert start(shared, "2", declared(cron="0 3 * * *"), declared("new")) == 2
    assert fact(shared, "cron") == "0 3 * * *"


@rule("M82")
@pytest.mark.parametrize("origin", ["api", "cli", "sql"])
def test_those_that_people_made_stay(shared: Connection, origin: str) -> None:
    set_clock(shared, NOON)
    put(shared, origin=origin)
    start(shared, "1")
    set_clock(shared, "2026-03-02 12:00:00")
    send_heartbeats(shared, "1")
    assert disable(shared) == []
