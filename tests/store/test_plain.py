"""Plain successes are written in a way of their own: what it does, the common way does too."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

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
