"""Types with history="failures": a success leaves no row, and nothing else is lost by that."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.rows import TupleRow

import rota
from rota.model.job import Job
from rota.store import ops
from tests.store.work import (
    CANCEL,
    FAIL,
    GIVE_UP,
    HAND_BACK,
    SUCCEED,
    Connection,
    Hand,
    expire,
    insert,
)
from tests.support.rules import rule


def rows(connection: Connection, query: str, *params: object) -> list[TupleRow]:
    return connection.execute(query.encode(), params or None).fetchall()


def declare(
    connection: Connection, name: str, *, history: str = "all", aliases: tuple[str, ...] = ()
) -> None:
    connection.execute(
        "select rota.worker_declare(%s, history => %s, aliases => %s)",
        [name, history, list(aliases)],
    )


def _ended(connection: Connection) -> dict[int, str]:
    return dict(rows(connection, "select id, status from rota.job_history order by id"))


@rule("M13")
def test_a_type_that_keeps_failures_only_leaves_no_row_of_a_success_but_of_everything_else(
    shared: Connection,
) -> None:
    declare(shared, "quiet", history="failures")
    quiet, kept = insert(shared, 5, job_type="quiet"), insert(shared, 2)
    hand = Hand(shared, types=["quiet", "t"])
    jobs = {job.id: job for job in hand.claim().jobs}
    ends = [SUCCEED, CANCEL, FAIL, GIVE_UP, HAND_BACK, SUCCEED, CANCEL]
    written = hand.settle(*((jobs[id_], end) for id_, end in zip(quiet + kept, ends, strict=True)))
    assert [written[id_].status for id_ in quiet + kept] == [
        "succeeded",
        "cancelled",
        "failed",
        "dead",
        "queued",
        "succeeded",
        "cancelled",
    ]
    assert _ended(shared) == {quiet[1]: "cancelled", kept[0]: "succeeded", kept[1]: "cancelled"}
    assert dict(rows(shared, "select id, status from rota.job")) == {
        quiet[2]: "failed",
        quiet[3]: "dead",
        quiet[4]: "queued",
    }
    assert rows(shared, "select job from rota.attempt order by 1") == [(quiet[2],), (quiet[3],)]


@rule("M13", "M12")
@pytest.mark.parametrize("history", ["failures", "all"])
def test_under_a_former_name_the_row_of_the_present_one_decides(
    shared: Connection, history: str
) -> None:
    declare(shared, "old", history="all" if history == "failures" else "failures")
    declare(shared, "new", history=history, aliases=("old",))
    ids = insert(shared, job_type="old")
    hand = Hand(shared, types=["old"])
    assert set(hand.settle((hand.claim().jobs[0], SUCCEED))) == set(ids)
    assert len(_ended(shared)) == (history == "all")


@rule("M51")
def test_a_key_of_a_success_that_left_no_row_is_still_taken_and_its_job_succeeded(
    app: rota.App, shared: Connection
) -> None:
    @app.job("quiet", history="failures")
    def quiet() -> None: ...

    app.sync()
    first = quiet.using(key="k").enqueue()
    hand = Hand(shared, types=["quiet"])
    hand.settle((hand.claim().jobs[0], SUCCEED))
    assert rows(shared, "select from rota.jobs") == []
    again = quiet.using(key="k").enqueue()
    assert (again.id, again.created, again.status) == (first.id, False, "succeeded")
    assert rows(shared, "select expires_at > now() from rota.idempotency") == [(True,)]


def _quiet_job(connection: Connection, hand: Hand) -> Job:
    insert(connection, job_type="quiet")
    [job] = hand.claim().jobs
    return job


@rule("M32")
def test_a_success_that_left_no_row_is_known_when_the_answer_was_lost(shared: Connection) -> None:
    declare(shared, "quiet", history="failures")
    hand = Hand(shared, "mine", types=["quiet"])
    job = _quiet_job(shared, hand)
    ending = ops.Ending(job, SUCCEED, 0.1)
    assert hand.run(ops.find_settled([ending], "mine")) == {}, "it is not written yet"
    hand.settle((job, SUCCEED))
    assert hand.settle((job, SUCCEED)) == {}
    assert hand.run(ops.find_settled([ending], "mine")) == {job.id: ops.Written("succeeded")}
    # Only of what was to succeed: anything else would have left a row.
    for end in (CANCEL, FAIL, HAND_BACK):
        assert hand.run(ops.find_settled([ops.Ending(job, end, 0.1)], "mine")) == {}


@rule("M32")
@pytest.mark.parametrize("end", [SUCCEED, CANCEL], ids=["succeeded", "cancelled"])
def test_who_lost_a_job_does_not_take_its_successors_success_for_its_own(
    shared: Connection, end: Any
) -> None:
    declare(shared, "quiet", history="failures")
    late, successor = (
        Hand(shared, "late", types=["quiet"]),
        Hand(shared, "successor", types=["quiet"]),
    )
    job = _quiet_job(shared, late)
    expire(shared)
    successor.reap()
    ending = ops.Ending(job, SUCCEED, 0.1)
    assert late.run(ops.find_settled([ending], "late")) == {}
    shared.execute("update rota.job set run_at = now()")
    successor.settle((successor.claim().jobs[0], end))
    assert late.run(ops.find_settled([ending], "late")) == {}


@rule("M32")
def test_a_job_of_another_type_that_is_nowhere_was_not_finished(shared: Connection) -> None:
    declare(shared, "t")
    hand = Hand(shared, "mine")
    insert(shared)
    [job] = hand.claim().jobs
    shared.execute("delete from rota.job")
    assert hand.run(ops.find_settled([ops.Ending(job, SUCCEED, 0.1)], "mine")) == {}
