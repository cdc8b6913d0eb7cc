"""The timeline of a job in order, and the figures, as Python reads them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.client.timeline import fold
from rota.model.settle import Transition
from tests.api.rows import Rows
from tests.store.work import FAIL, GIVE_UP, SUCCEED, Hand, insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


def read_entries(app: rota.App, id: int) -> list[tuple[int, str]]:
    return [(entry.job, entry.what) for entry in app.jobs.timeline(id).entries]


def act(
    connection: Connection, verb: str, job: int | None = None, *, queue: str | None = None
) -> None:
    connection.execute(
        "insert into rota.action (verb, job, queue, by, why) values (%s, %s, %s, 'grace', 'so')",
        [verb, job, queue],
    )


@rule("M33", "M85")
def test_the_timeline_of_a_running_job_says_what_its_worker_cannot_write_and_when_its_lease_expired(
    app: rota.App, connection: Connection
) -> None:
    [job] = insert(connection)
    hand = Hand(connection)
    hand.claim()
    hand.send_heartbeat(refused="reaper: no right")
    assert app.jobs.timeline(job).entries[-1].what == "running"
    hand.send_heartbeat(refused="finisher, reaper: no right")
    said = app.jobs.timeline(job).entries[-1]
    assert said.what == "waits" and said.text.endswith(
        "cannot write any: finisher, reaper: no right"
    )
    connection.execute("update rota.job set locked_until = now() - interval '1 minute'")
    waits = [entry for entry in app.jobs.timeline(job).entries if entry.what == "waits"]
    assert [wait.text for wait in waits] == [
        "for a worker to take it: the lease of hand has expired"
    ]


@rule("M43", "M85", "M87")
def test_the_timeline_lists_each_attempt_and_each_pause_that_held_it_up(
    app: rota.App, rows: Rows, connection: Connection
) -> None:
    tries = iter([OSError("no\nroute"), ValueError("no such customer")])

    @app.job("send", queue="mail", fatal_on=(ValueError,), retry=rota.Fixed("10s"))
    def send() -> None:
        raise next(tries)

    job = send.using(key="k").enqueue().id
    app.drain()
    act(connection, "pause", queue="mail")
    act(connection, "pause", queue="another")
    act(connection, "pause")
    rows.make_all_due()
    app.drain()
    timeline = app.jobs.timeline(job)
    whats = [entry.what for entry in timeline.entries]
    assert whats == ["enqueued", "failed", "pause", "pause", "dead"]
    enqueued, failed, of_queue, of_all, dead = (entry.text for entry in timeline.entries)
    assert enqueued == "send in queue mail, priority 0; with key k"
    assert failed.startswith("OSError: no route; retries at 20") and "\n" not in failed
    assert f" by {timeline.attempts[0].worker}, release unknown" in failed
    assert "; transient (" in failed and "; attempt 1 after " in failed
    assert "ValueError: no such customer; fatal (fatal_on ValueError)" in dead
    assert (of_queue, of_all) == ("queue mail by grace: so", "everything by grace: so")
    assert timeline.entries == sorted(timeline.entries, key=lambda entry: entry.at)


@rule("M44", "M85", "M87")
def test_each_action_on_a_job_is_shown_once_in_order_and_in_all_the_jobs_it_leads_to(
    app: rota.App, connection: Connection
) -> None:
    app.job("send")(lambda day: None)
    send = app.types["send"]
    hand = Hand(connection, types=["send"])

    def run(outcome: Transition) -> None:
        [job] = hand.claim().jobs
        hand.settle((job, outcome))

    first = send.using(key="k").enqueue("2026-1-14").id
    run(FAIL)
    app.retry(first, why="it is back", by="ann")
    run(GIVE_UP)
    fixed = app.retry(first, payload={"day": "2026-01-14"}, why="a typo", by="ann").id
    run(GIVE_UP)
    third = app.retry(fixed, by="bob").id
    run(SUCCEED)
    copy = app.retry(third, why="once more", by="carl", again=True).id
    run(SUCCEED)
    chain = [
        (first, "enqueued"), (first, "failed"), (first, "retry"), (first, "dead"),
        (first, "requeue"), (fixed, "enqueued"), (fixed, "dead"),
        (fixed, "requeue"), (third, "enqueued"), (third, "succeeded"), (third, "run_again"),
    ]  # fmt: skip
    assert read_entries(app, first) == read_entries(app, fixed) == read_entries(app, third) == chain
    texts = {(entry.job, entry.what): entry.text for entry in app.jobs.timeline(first).entries}
    assert texts[first, "requeue"] == f"by ann, fixed as job {fixed}: a typo"
    assert texts[fixed, "requeue"] == f"by bob, requeued as job {third}"
    assert texts[third, "run_again"] == f"by carl, as job {copy}: once more"
    assert read_entries(app, copy) == [(copy, "run_again"), (copy, "enqueued"), (copy, "succeeded")]
    assert app.jobs.timeline(copy).entries[0].text == f"of job {third} by carl: once more"


def test_a_timeline_and_figures_of_what_cannot_be_are_refused(app: rota.App) -> None:
    with pytest.raises(rota.JobNotFound):
        app.jobs.timeline(12345)
    wrong: Any = "5"
    with pytest.raises(rota.UsageError):
        app.jobs.timeline(wrong)
    for given in ({"hours": 0}, {"hours": 745}, {"job_type": 5}):
        with pytest.raises(rota.UsageError, match=next(iter(given))):
            app.queues.stats(**given)  # type: ignore[arg-type]


@rule("M85")
def test_many_effects_in_a_row_that_are_done_are_shown_as_one_line(
    app: rota.App, connection: Connection
) -> None:
    [job] = insert(connection)
    connection.execute(
        "insert into rota.effect (key, job, claim, entry, if_uncertain, intended_at, done_at, "
        "uncertain_before) select 'note:' || n, %s, 1, n + 1, 'dead', now() + n * interval '1 s', "
        "now() + n * interval '1 s', (n = 20)::int from generate_series(0, 49) n",
        [job],
    )
    timeline = app.jobs.timeline(job)
    assert len(timeline.entries) == 51
    shown = [(entry.what, entry.text) for entry in fold(timeline.entries)]
    assert [text.partition(":")[0] for what, text in shown if what == "effect"] == [
        "note", "18 more, all done", "note", "note", "note", "27 more, all done", "note",
    ]  # fmt: skip
    assert shown[4][1] == "note:20: done; may have happened before (1 time)"
    assert fold(timeline.entries[:7]) == timeline.entries[:7]
