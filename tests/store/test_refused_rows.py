"""What the database refuses for one job costs the others of the same pass nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.rows import TupleRow

from rota.store import isolate, ops
from rota.store.errors import RowLocked, ServerTrouble
from tests.store.work import Hand, expire, insert
from tests.support.rules import rule

JOBS = 20
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def _refuse(connection: psycopg.Connection[TupleRow], jobs: list[int], raises: str) -> None:
    connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        f" if old.id = any ('{{{','.join(map(str, jobs))}}}') then {raises}; end if;"
        " if tg_op = 'DELETE' then return old; end if; return new; end $$".encode()
    )
    connection.execute(
        "create trigger refuse before update or delete on rota.job for each row execute function "
        "refuse()"
    )


@rule("M2", "M31")
@pytest.mark.parametrize("state", ["P0001", "42P01"])
def test_lost_jobs_are_reaped_around_those_that_are_refused(
    connection: psycopg.Connection[TupleRow], state: str
) -> None:
    ids = insert(connection, JOBS)
    hand = Hand(connection)
    hand.claim()
    expire(connection)
    bad = [ids[3], ids[-1]]
    _refuse(connection, bad, f"raise sqlstate '{state}' using message = 'not this one'")
    _, reaped, refusals = hand.run(ops.reap(BEGINNING, 500))
    assert sorted(lost.job for lost in reaped) == [job for job in ids if job not in bad]
    assert list(refusals) == bad and all("not this one" in why for why in refusals.values())
    connection.execute("drop function refuse cascade")
    assert [lost.job for lost in hand.reap()] == bad


@rule("M2", "M31")
def test_lost_jobs_are_reaped_around_one_that_stands_behind_a_lock(
    connection: psycopg.Connection[TupleRow],
    second: psycopg.Connection[TupleRow],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolate, "WAIT_S", 300.0)  # however slow the machine is
    ids = insert(connection, JOBS)
    hand = Hand(connection)
    hand.claim()
    expire(connection)
    connection.execute("create table ledger (entry int)")
    connection.execute("insert into ledger values (1)")
    _refuse(connection, [ids[3]], "update public.ledger set entry = entry + 1")
    second.execute("begin")
    second.execute("select from ledger for update")
    connection.execute("set lock_timeout = '100s'")
    connection.execute("set statement_timeout = '20s'")
    _, reaped, refusals = hand.run(ops.reap(BEGINNING, 500))
    assert sorted(lost.job for lost in reaped) == [job for job in ids if job != ids[3]]
    assert list(refusals) == [ids[3]] and "lock timeout" in refusals[ids[3]]
    assert connection.execute("show lock_timeout").fetchone() == ("100s",)
    second.execute("rollback")
    assert [lost.job for lost in hand.reap()] == [ids[3]]


@rule("M2", "M33")
def test_starts_are_recorded_around_those_that_are_refused(
    connection: psycopg.Connection[TupleRow],
) -> None:
    ids = insert(connection, JOBS, max_attempts=1)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    _refuse(connection, [ids[5]], "raise exception 'not this one'")
    said = hand.run(ops.start([(job.id, job.claims, False) for job in jobs]))
    assert [job for job, recorded in said.items() if recorded is True] == [
        job for job in ids if job != ids[5]
    ]
    assert isinstance(said[ids[5]], ops.Refused)


@rule("M2", "M30")
@pytest.mark.parametrize("state", ["P0001", "23514", "42P01", "XX000"])
def test_due_jobs_are_claimed_around_those_that_are_refused(
    connection: psycopg.Connection[TupleRow], state: str
) -> None:
    ids = insert(connection, JOBS)
    bad = [ids[0], ids[3]]
    _refuse(connection, bad, f"raise sqlstate '{state}' using message = 'not this one'")
    hand = Hand(connection)
    first = hand.claim(5)
    assert [job.id for job in first.jobs] == [ids[1], ids[2], ids[4]]
    assert [(refused.id, refused.queue, refused.priority) for refused in first.refused] == [
        (job, "default", 0) for job in bad
    ]
    assert all("not this one" in refused.reason for refused in first.refused)
    assert [job.id for job in first.seen] == ids[:5]
    rest = hand.claim(refused=bad)
    assert ([job.id for job in rest.jobs], rest.refused) == (ids[5:], ())
    nothing = hand.claim()
    assert (nothing.jobs, [refused.id for refused in nothing.refused]) == ([], bad)
    connection.execute("drop function refuse cascade")
    assert [job.id for job in hand.claim().jobs] == bad


@rule("M2")
def test_a_constraint_that_an_old_row_does_not_keep_stops_no_claim(
    connection: psycopg.Connection[TupleRow],
) -> None:
    ids = insert(connection, JOBS)
    connection.execute(
        f"alter table rota.job add constraint mine check (id <> {ids[0]}) not valid".encode()
    )
    claimed = Hand(connection).claim(10)
    assert [job.id for job in claimed.jobs] == ids[1:10]
    assert [job.id for job in claimed.refused] == ids[:1] and "mine" in claimed.refused[0].reason


@rule("M2", "M15")
def test_a_claim_in_sql_goes_on_around_those_that_are_refused(
    shared: psycopg.Connection[TupleRow],
) -> None:
    ids = insert(shared, JOBS)
    _refuse(shared, [ids[0], ids[2], ids[3]], "raise exception 'not this one'")
    said: list[str | None] = []
    shared.add_notice_handler(lambda notice: said.append(notice.message_primary))
    claim = "select array_agg(id order by id) from rota.claim('default', array['t'], 'w', %s)"
    assert shared.execute(claim, [2]).fetchone() == ([ids[1], ids[4]],)
    assert (
        all(text and "refuses job" in text and "not this one" in text for text in said)
        and len(said) == 3
    )
    assert shared.execute(claim, [JOBS]).fetchone() == (ids[5:],)
    shared.execute("drop function refuse cascade")
    assert shared.execute(claim, [JOBS]).fetchone() == ([ids[0], ids[2], ids[3]],)


@rule("M2", "M22", "M30")
def test_a_claim_around_the_refused_takes_what_a_claim_takes(
    connection: psycopg.Connection[TupleRow],
) -> None:
    for priority in (0, 7):
        for more in (
            {},
            {"mismatched_releases": ["1"]},
            {"mismatched_releases": ["2"]},
            {"max_attempts": 1},
            {"losses": 1},
            {"queue": "paused"},
            {"job_type": "u"},
        ):
            insert(connection, 2, **{"priority": priority, **more})
    insert(connection, 2, run_at=datetime(2999, 1, 1, tzinfo=UTC))
    connection.execute("insert into rota.queue (name, paused_at) values ('paused', now())")
    hand = Hand(connection, queues=["default", "paused"], priorities=[0, 7])
    taken = []
    connection.execute("begin")
    connection.execute(
        "create or replace function rota.clock() returns timestamptz language sql stable parallel "
        "safe as 'select pg_catalog.now()'"
    )
    for refused in ([], [-1]):
        connection.execute("savepoint before")
        taken.append([hand.claim(limit, known={}, refused=refused) for limit in (5, 100)])
        connection.execute("rollback to before")
    connection.execute("rollback")
    # A savepoint of its own is a transaction, too: the snapshots differ.
    taken = [[replace(claim, snapshot="") for claim in claims] for claims in taken]
    assert taken[0] == taken[1]
    assert len(taken[0][0].jobs) == 5 and taken[0][1].jobs and taken[0][1].paused == {"paused"}


@rule("M2")
def test_a_claim_is_tried_row_by_row_only_where_a_row_is_at_fault(
    connection: psycopg.Connection[TupleRow],
) -> None:
    ids = insert(connection, JOBS)
    for raises, error in (
        ("raise disk_full", ServerTrouble),
        ("raise lock_not_available", RowLocked),
    ):
        _refuse(connection, ids[:1], raises)
        for refused in ((), [-1]):
            with pytest.raises(error):
                Hand(connection).claim(refused=refused)
        connection.execute("drop function refuse cascade")
