"""Outcomes that the database refuses for no fault of their jobs: the worker keeps them for as long
as it lives, claims nothing meanwhile, and says so in its row."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from rota.errors import DatabaseUnavailable
from rota.observe.events import JobSucceeded, OutcomeRefused, WorkerStopped
from rota.worker.claimer import Claimer
from tests.support.role import login_role
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, over, put, put_many, rows, value
from tests.worker.test_unwritten import (
    JOBS,
    REFUSED,
    _allow,
    _jobs,
    _refuse,
    _renewed,
    _turns,
    renewed_often,
)

__all__ = ["renewed_often"]


@pytest.fixture(autouse=True)
def told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the worker write its row often, and give up early what it may give up."""
    monkeypatch.setattr("rota.worker.lease_keeper.HEARTBEAT_S", 0.2)
    monkeypatch.setattr("rota.worker.finisher.TRY_FOR_S", 0.1)


@pytest.fixture
def role(admin: Connection, database: str) -> Iterator[str]:
    """A role that may do what a worker does, and may not delete a job: so it finishes none."""
    grants = ("schema", "all tables in schema", "all sequences in schema")
    with login_role(
        admin,
        database,
        *(f"grant all on {what} rota to {{}}" for what in grants),
        "revoke delete on rota.job from {}",
    ) as name:
        yield name


@rule("M2", "M33", "M86")
async def test_no_job_runs_twice_because_its_worker_lacked_a_right(
    database: str, connection: Connection, role: str
) -> None:
    put_many(connection, "work", 5)
    async with Hand(make_conninfo(database, user=role), _jobs(), slots=5) as hand:
        lost = await hand.lost("finisher")
        assert "permission denied for table job" in lost.reason
        turns = _turns(hand.part(Claimer))
        put_many(connection, "work", JOBS)
        await aeventually(lambda: len(turns) >= 3)
        # One claim may have been under way when the first outcome was refused.
        assert len({claimed for _, claimed in turns}) == 1
        await aeventually(lambda: "finisher, claimer" in str(value(connection, REFUSED)))
        await aeventually(lambda: _renewed(connection))
        connection.execute(f"grant delete on rota.job to {role}".encode())
        await aeventually(lambda: over(connection) == JOBS + 5)
        await aeventually(lambda: value(connection, REFUSED) is None)
    ran = "select distinct status, attempts, claims from rota.job_history"
    assert rows(connection, ran) == [("succeeded", 1, 1)]


@rule("M2", "M86")
async def test_a_worker_that_stops_names_the_jobs_whose_outcomes_are_lost(
    database: str, connection: Connection, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.shutdown.RECORD_S", 0.2)
    put_many(connection, "work", 3)
    async with Hand(make_conninfo(database, user=role), _jobs(), slots=3) as hand:
        await hand.lost("finisher")
    [stopped] = [event for event in hand.events if isinstance(event, WorkerStopped)]
    ids = [id_ for (id_,) in rows(connection, "select id from rota.job order by id")]
    assert (stopped.unwritten, stopped.level_now) == (tuple(ids), logging.ERROR)
    assert "took no outcome of 3 jobs (" in stopped.text()


@rule("M80")
async def test_a_drain_that_can_write_no_outcome_ends(
    database: str, connection: Connection, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.claimer.AWAY_S", 0.2)
    monkeypatch.setattr("rota.worker.shutdown.RECORD_S", 0.2)
    put(connection, "work")
    with pytest.raises(DatabaseUnavailable, match="permission denied for table job"):
        await Hand(make_conninfo(database, user=role), _jobs(), drain=True).run()


@rule("M2", "M33")
async def test_an_outcome_is_kept_while_a_right_is_missing_for_it_alone(
    database: str, connection: Connection
) -> None:
    bad = put(connection, "work")
    put_many(connection, "work", JOBS)
    _refuse(connection, "job_history", f"new.id = {bad}", raises="raise insufficient_privilege")
    async with Hand(database, _jobs()) as hand:
        refused = await hand.heard(OutcomeRefused)
        assert refused.for_s is None and "as long as the worker lives" in refused.text()
        await aeventually(lambda: over(connection) == JOBS)
        await aeventually(
            lambda: f"outcome of job {bad} is refused" in str(value(connection, REFUSED))
        )
        [attempt] = hand.worker.attempts.values()
        assert hand.is_refused(attempt)
        _allow(connection)
        await hand.heard(JobSucceeded, job=bad)
    assert rows(connection, "select distinct attempts, claims from rota.job_history") == [(1, 1)]
