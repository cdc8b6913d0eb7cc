"""Plain successes are written in a way of their own: what it does, the common way does too. And no
row is plain that an INSERT refuses."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from rota.store import ops
from tests.store.work import SUCCEED, Connection, Hand, insert
from tests.support.rules import rule

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keyed": {"idempotency_key": "k"},
    "unkept": {"job_type": "unkept", "idempotency_key": "k"},
    "retried": {"error_type": "OSError", "last_error": "no route", "failed_at": "2026-01-01"},
    "of a schedule": {"schedule": "s", "scheduled_for": "2026-01-01", "meta": '{"a": 1}'},
    "asked to stop": {},
    "of another claim": {},
    "gone": {},
}


def _end(connection: Connection, kinds: list[str], *, plainly: bool) -> dict[str, Any]:
    """Finish one job of each kind; return what is in the database and what was answered."""
    connection.execute(
        "truncate rota.job, rota.idempotency, rota.job_history, rota.attempt, rota.job_type, "
        "rota.schedule_run restart identity"
    )
    connection.execute("insert into rota.job_type (name, history) values ('unkept', 'failures')")
    for at, kind in enumerate(kinds):
        columns = dict(KINDS[kind])
        if "idempotency_key" in columns:
            columns["idempotency_key"] += str(at)
        insert(connection, **columns)
    hand = Hand(connection, types=["t", "unkept"])
    jobs = sorted(hand.claim().jobs, key=lambda job: job.id)
    for job, kind in zip(jobs, kinds, strict=True):
        if kind == "asked to stop":
            connection.execute("select rota.job_cancel(array[%s::bigint])", [job.id])
        elif kind == "of another claim":
            connection.execute("update rota.job set claims = claims + 1 where id = %s", [job.id])
        elif kind == "gone":
            connection.execute("delete from rota.job where id = %s", [job.id])
    if plainly:
        claims = [(job.id, job.claims, 0.25) for job in jobs]
        answered = hand.run(ops.finish_plain(claims, hand.release))
    else:
        endings = [ops.Ending(job, SUCCEED, 0.25) for job in jobs]
        answered = set(hand.run(ops.finish(endings, hand.release)))
    asked = connection.cursor(row_factory=dict_row)
    times = "array['run_at', 'created_at', 'updated_at', 'started_at', 'finished_at', "
    times += "'locked_until', 'expires_at', 'cancel_requested_at']"
    found: dict[str, Any] = {"answered": answered}
    for table, extra in (
        ("job", "true"),
        ("job_history", "date_trunc('s', finished_at - started_at)"),
        ("idempotency", "expires_at is null"),
        ("attempt", "true"),
    ):
        found[table] = asked.execute(
            f"select to_jsonb(r) - {times} as row, {extra} as extra from rota.{table} r "
            f"order by to_jsonb(r) - {times}"
        ).fetchall()
    return found


@rule("M32", "M51")
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=8))
@example(list(KINDS))
def test_plain_successes_leave_what_the_common_way_leaves(
    connection: Connection, kinds: list[str]
) -> None:
    plainly = _end(connection, kinds, plainly=True)
    assert plainly == _end(connection, kinds, plainly=False)
    lost = sum(kind in ("of another claim", "gone") for kind in kinds)
    assert len(plainly["answered"]) == len(kinds) - lost


@rule("M32")
def test_plain_successes_of_which_one_is_refused_are_left_to_the_common_way(
    connection: Connection,
) -> None:
    insert(connection, 3)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    connection.execute(
        f"""
        create function public.refuse() returns trigger language plpgsql as
          $$ begin raise 'not this one'; end $$;
        create trigger refuse before delete on rota.job for each row
          when (old.id = {jobs[1].id}) execute function public.refuse()""".encode()
    )
    claims = [(job.id, job.claims, 0.25) for job in jobs]
    assert hand.run(ops.finish_plain(claims, hand.release)) is None
    assert connection.execute("select count(*) from rota.job").fetchone() == (3,)


PLAIN: dict[str, Any] = {
    "id": 1, "job_type": "mail", "queue": "default", "priority": 0, "status": "queued",
    "payload": {}, "attempts": 0, "claims": 0, "run_at": "2026-01-01T00:00:00Z",
    "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
}  # fmt: skip
TAKEN: list[dict[str, Any]] = [
    {},
    {"idempotency_key": "k" * 100, "max_attempts": 10_000, "payload_version": 1, "priority": -100},
    {"expires_at": "8999-12-31T00:00:00Z", "meta": {"trace": "4bf92f"}, "payload": {"user": 7}},
    {"timeout": "1 minute", "group_key": "anna", "group_capacity": 3},
]
REFUSED: list[dict[str, Any]] = [
    {"job_type": ""}, {"job_type": "t" * 201}, {"queue": ""}, {"queue": "q" * 101},
    {"priority": 101}, {"priority": -101}, {"payload_version": 0},
    {"max_attempts": 0}, {"max_attempts": 10_001},
    {"idempotency_key": ""}, {"idempotency_key": "k" * 256},
    {"status": "done"}, {"status": "running"},
    {"locked_by": "w", "locked_until": "2026-01-01T00:00:00Z"},
    *(
        {column: time}
        for column in (
            "run_at", "expires_at", "created_at", "updated_at", "started_at", "failed_at",
            "scheduled_for", "cancel_requested_at",
        )
        for time in ("1969-12-31T00:00:00Z", "infinity")
    ),
    {"payload": []}, {"payload": "text"}, {"payload": {"text": "x" * 65_536}},
    {"meta": []}, {"meta": {"text": "x" * 65_536}},
    *(
        {column: "x" * 65_537}
        for column in (
            "last_error", "error_type", "verdict", "verdict_rule", "cancel_reason", "schedule",
        )
    ),
    {"mismatched_releases": ["x" * 65_537]},
    {"timeout": "0"},
    {"progress": {"done": 1, "total": None, "note": "x" * 65_536, "at": "2026-01-01T00:00:00Z"}},
    {"group_key": ""}, {"group_key": "g" * 256}, {"group_capacity": 0}, {"group_capacity": 1001},
]  # fmt: skip


@rule("M12")
def test_a_usual_row_is_plain(shared: Connection) -> None:
    for columns in TAKEN:
        assert _look(shared, columns) == (True, None), columns


@rule("M12", "M15")
def test_no_row_that_is_refused_is_plain(shared: Connection) -> None:
    for columns in REFUSED:
        is_plain, refusal = _look(shared, columns)
        assert (is_plain, bool(refusal)) == (False, True), columns


def _look(connection: Connection, columns: dict[str, Any]) -> tuple[bool, str | None]:
    [[is_plain, refusal]] = connection.execute(
        "select rota.job_row_is_plain(j) is not false, rota.job_refusal(j)"
        " from jsonb_populate_record(null::rota.job, %s) j",
        [Jsonb({**PLAIN, **columns})],
    ).fetchall()
    return is_plain, refusal
