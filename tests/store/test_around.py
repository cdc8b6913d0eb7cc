"""What the database refuses for one job costs the others of the same pass nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.store import ops
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
    connection.execute("create trigger refuse before update or delete on rota.job for each row execute function refuse()")


@rule("M2", "M31")
@pytest.mark.parametrize("state", ["P0001", "23514", "42P01", "42501"])
def test_lost_jobs_are_reaped_around_those_that_are_refused(connection: psycopg.Connection[TupleRow], state: str) -> None:
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


@rule("M2", "M36")
def test_jobs_past_their_expiry_end_around_those_that_are_refused(connection: psycopg.Connection[TupleRow]) -> None:
    ids = insert(connection, JOBS)
    connection.execute("update rota.job set expires_at = now() - interval '1 s'")
    _refuse(connection, [ids[0]], "raise exception 'not this one'")
    hand = Hand(connection)
    _, ended, refusals = hand.run(ops.expire("w", BEGINNING, 0, 500))
    assert ([gone.job for gone in ended], list(refusals)) == (ids[1:], [ids[0]])


@rule("M2", "M13")
def test_dead_jobs_are_put_away_around_those_that_are_refused(connection: psycopg.Connection[TupleRow]) -> None:
    ids = insert(connection, JOBS)
    connection.execute("update rota.job set status = 'dead', failed_at = now() - interval '91 days'")
    _refuse(connection, [ids[0]], "raise exception 'not this one'")
    moved, refusals = Hand(connection).run(ops.put_dead_away(500))
    assert (moved, list(refusals)) == (JOBS - 1, [ids[0]])


@rule("M2", "M33")
def test_starts_are_recorded_around_those_that_are_refused(connection: psycopg.Connection[TupleRow]) -> None:
    ids = insert(connection, JOBS, max_attempts=1)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    _refuse(connection, [ids[5]], "raise exception 'not this one'")
    said = hand.run(ops.start([(job.id, job.claims) for job in jobs]))
    assert [job for job, recorded in said.items() if recorded is True] == [job for job in ids if job != ids[5]]
    assert isinstance(said[ids[5]], ops.Refused)


@rule("M2")
def test_what_is_no_rows_fault_is_not_looked_for_among_the_rows(connection: psycopg.Connection[TupleRow]) -> None:
    insert(connection, JOBS)
    connection.execute("update rota.job set status = 'dead', failed_at = now() - interval '91 days'")
    _refuse(connection, [0], "null")
    connection.execute("create sequence tried")
    connection.execute(
        "create or replace function refuse() returns trigger language plpgsql as"
        " $$ begin perform nextval('public.tried'); raise disk_full using message = 'no'; end $$"
    )
    with pytest.raises(psycopg.errors.DiskFull):
        Hand(connection).run(ops.put_dead_away(500))
    assert connection.execute("select last_value from tried").fetchone() == (1,)
