"""The timeline of a job in order, and the figures, as Python reads them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.client.timeline import fold
from tests.api.rows import Rows
from tests.store.work import PAYLOAD_MISMATCH, Hand, insert
from tests.support.cli import CommandLine
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


def read_entries(app: rota.App, id: int) -> list[tuple[int, str]]:
    return [(entry.job, entry.what) for entry in app.jobs.timeline(id).entries]


def act(
    connection: Connection,
    verb: str,
    job: int | None = None,
    *,
    queue: str | None = None,
    detail: str | None = None,
) -> None:
    connection.execute(
        "insert into rota.action (verb, job, queue, by, why, detail) values (%s, %s, %s, "
        "'grace@office', 'as agreed', %s)",
        [verb, job, queue, detail],
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
    waits = [one for one in app.jobs.timeline(job).entries if one.what == "waits"]
    assert [one.text for one in waits] == ["for a worker to take it: the lease of hand has expired"]


@rule("M43", "M85", "M87")
def test_the_timeline_lists_each_attempt_who_acted_and_what_it_was_requeued_as(
    app: rota.App, connection: Connection
) -> None:
    rows = Rows(connection)
    tries = iter([OSError("no\nroute"), ValueError("no such customer"), None])

    @app.job("send", queue="mail", fatal_on=(ValueError,), retry=rota.Fixed("10s"))
    def send() -> None:
        if error := next(tries):
            raise error

    first = send.using(key="k").enqueue().id
    app.drain()
    act(connection, "pause", queue="mail")
    act(connection, "pause", queue="another")
    act(connection, "pause")
    rows.make_all_due()
    app.drain()
    assert read_entries(app, first) == [
        (first, "enqueued"),
        (first, "failed"),
        (first, "pause"),
        (first, "pause"),
        (first, "dead"),
    ]
    [again] = connection.execute(
        "insert into rota.job (job_type, queue, priority, origin_id) values ('send', 'mail', 0, "
        "%s) returning id",
        [first],
    ).fetchone() or [0]
    act(connection, "requeue", first, detail=f'{{"requeued_as": {again}}}')
    app.drain()

    timeline = app.jobs.timeline(again)
    assert (
        [job.id for job in timeline.chain] == [first, again]
        and timeline.job.id == again
        and timeline.attempts == []
    )
    ends = [
        (first, "enqueued"),
        (first, "failed"),
        (again, "pause"),
        (again, "pause"),
        (first, "dead"),
    ]
    # The new job was enqueued before the action was recorded.
    assert read_entries(app, again) == [
        *ends,
        (again, "enqueued"),
        (first, "requeue"),
        (again, "succeeded"),
    ]
    texts = {(entry.job, entry.what): entry.text for entry in timeline.entries}
    worker = app.jobs.timeline(first).attempts[0].worker
    assert texts[first, "enqueued"] == "send in queue mail, priority 0; with key k"
    assert texts[again, "enqueued"] == f"send in queue mail, priority 0; as job {first} again"
    failed = texts[first, "failed"]
    assert (
        failed.startswith("OSError: no route; retries at 20")
        and f" by {worker}, release unknown" in failed
    )
    assert "; transient (" in failed and "; attempt 1 after " in failed and "\n" not in failed
    assert "ValueError: no such customer; fatal (fatal_on ValueError)" in texts[first, "dead"]
    assert texts[first, "requeue"] == f"by grace@office, requeued as job {again}: as agreed"
    assert {entry.text for entry in timeline.entries if entry.what == "pause"} == {
        "queue mail by grace@office: as agreed",
        "everything by grace@office: as agreed",
    }
    assert (
        texts[again, "succeeded"].startswith("attempt 1 by ")
        and "release unknown" in texts[again, "succeeded"]
    )
    assert [entry.action.by for entry in timeline.entries if entry.action] == ["grace@office"] * 3
    assert [entry.at for entry in timeline.entries] == sorted(
        entry.at for entry in timeline.entries
    )


@rule("M82", "M85")
def test_the_timeline_names_the_schedule_the_reason_of_a_cancel_and_who_archived_a_dead_job(
    app: rota.App, connection: Connection
) -> None:
    tick = datetime(2026, 1, 14, 2, tzinfo=UTC)
    [(off,), (running,)] = connection.execute(
        "insert into rota.job (job_type, queue, priority, schedule, scheduled_for) values ('t', "
        "'q', 0, 'nightly', %s), ('t', 'q', 0, 'nightly', null) "
        "returning id",
        [tick],
    ).fetchall()
    app.cancel(off, why="not this week")
    entries = app.jobs.timeline(off).entries
    assert (entries[0].what, entries[-1].what) == ("enqueued", "cancelled")
    assert entries[0].text == (
        "t in queue q, priority 0; by schedule nightly "
        f"for {tick.astimezone().isoformat(sep=' ', timespec='seconds')}"
    )
    assert entries[-1].text == "cancelled: not this week"

    connection.execute(
        "update rota.job set status = 'running', locked_by = 'w', locked_until = now() + '1 h', "
        "started_at = now(), attempts = 1 where id = %s",
        [running],
    )
    assert [entry.text for entry in app.jobs.timeline(running).entries] == [
        "t in queue q, priority 0; by schedule nightly, triggered",
        "attempt 1 by w, since then",
    ]
    connection.execute(
        "update rota.job set status = 'dead', locked_by = null, locked_until = null, failed_at = "
        "now() - interval '91 days' where id = %s",
        [running],
    )
    connection.execute("select rota.dead_archive(10)")
    assert app.jobs.timeline(running).entries[-1].text == "archived by retention: dead for 90 days"


@rule("M85", "M87")
def test_the_release_of_a_restored_copy_is_shown_as_that_and_not_as_a_resume_of_everything(
    app: rota.App, connection: Connection
) -> None:
    [(job,)] = connection.execute(
        "insert into rota.job (job_type) values ('t') returning id"
    ).fetchall()
    connection.execute("select rota.pause_all(p_by => 'ann')")
    act(connection, "resume", detail='{"copy": "recorded as database production"}')
    assert [entry.text for entry in app.jobs.timeline(job).entries if entry.action is not None] == [
        "everything by ann",
        "a restored copy by grace@office: as agreed",
    ]


@rule("M62", "M63", "M87")
def test_a_job_shows_what_people_did_to_the_limit_or_breaker_it_waits_for_and_to_no_other(
    app: rota.App, connection: Connection
) -> None:
    @app.job("call", breaker=rota.Breaker(key=lambda host: host))
    def call(host: str) -> None: ...

    @app.job("mail", rate_limit=rota.RateLimit("smtp", 100, per="1m"))
    def mail() -> None: ...

    app.sync()
    waits = ["limit smtp", "limit smtp anna", "limit smtp2", "breaker call b", "breaker call", None]
    [smtp, anna, other, b, whole, none] = [
        connection.execute(
            "insert into rota.job (job_type, waits_for) values ('t', %s) returning id", [one]
        ).fetchall()[0][0]
        for one in waits
    ]
    app.limits.set("smtp", 60, why="a warning", by="ann")
    app.breakers.trip("call", "b", by="ann")
    app.breakers.trip("call", "c", by="ann")
    app.breakers.reset("call", "c", by="ann")
    app.breakers.trip("call", by="ann")

    def read(job: int) -> list[str]:
        return [one.text for one in app.jobs.timeline(job).entries if one.action is not None]

    changed = ["limit smtp to 60 in 1 min, 10 at once, by ann: a warning"]
    assert (read(smtp), read(anna), read(other)) == (changed, changed, [])
    assert read(b) == ["breaker call b by ann", "breaker call by ann"]
    assert (read(whole), read(none)) == (["breaker call by ann"], [])


@rule("M36", "M85")
def test_the_timeline_of_an_expired_job_lays_no_attempt_at_the_door_of_the_worker_that_found_it(
    app: rota.App, connection: Connection
) -> None:
    @app.job("offer", expires="1ms")
    def offer() -> None:
        raise AssertionError

    [(job,)] = connection.execute(
        "insert into rota.job (job_type, expires_at) values ('offer', now()) returning id"
    ).fetchall()
    app.drain()
    timeline = app.jobs.timeline(job)
    assert (timeline.job.attempts, [entry.what for entry in timeline.entries]) == (
        0,
        ["enqueued", "dead"],
    )
    worker = timeline.attempts[0].worker
    text = timeline.entries[-1].text
    assert text.startswith("Expired: not started before expires_at (")
    assert f"; attempt 1 never began, found by {worker}" in text


@rule("M36", "M85")
def test_the_timeline_of_a_dropped_job_ends_with_what_held_it_up(
    app: rota.App, connection: Connection
) -> None:
    @app.job("refresh", on_expired="drop")
    def refresh() -> None:
        raise AssertionError

    app.sync()
    [(job,)] = connection.execute(
        "insert into rota.job (job_type, expires_at) values ('refresh', now()) returning id"
    ).fetchall()
    assert app.drain().dead == 0
    timeline = app.jobs.timeline(job)
    assert [entry.what for entry in timeline.entries] == ["enqueued", "cancelled"]
    assert timeline.entries[-1].text.startswith("cancelled: expired: not started before expires_at")


@rule("M44", "M85", "M87")
def test_each_action_on_a_job_is_shown_once_in_order_and_in_all_the_jobs_it_leads_to(
    app: rota.App, connection: Connection
) -> None:
    how = iter([OSError("no route"), OSError("no route"), ValueError("bad day"), None, None])

    @app.job("send", retry=rota.Fixed("10s"), max_attempts=2, fatal_on=(ValueError,))
    def send(day: str) -> None:
        if error := next(how):
            raise error

    first = send.using(key="k").enqueue("2026-1-14").id
    app.drain()
    app.retry(first, why="it is back", by="ann")
    app.drain()
    fixed = app.retry(first, payload={"day": "2026-01-14"}, why="a typo", by="ann").id
    app.drain()
    third = app.retry(fixed, by="bob").id
    app.drain()
    copy = app.retry(third, why="once more", by="carl", again=True).id
    app.drain()
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

    later = send.enqueue("x").id
    app.jobs.reschedule(later, delay="1h", queue="slow", why="she asked for it", by="ann")
    app.jobs.reschedule(later, queue="slow", by="ann")
    [_, moved, again] = app.jobs.timeline(later).entries
    assert re.fullmatch(
        r"run_at [-0-9]+ [0-9:]+\+\S+ → [-0-9]+ [0-9:]+\+\S+, queue default → slow, by ann: she .*",
        moved.text,
    )
    assert again.text == "nothing changed, by ann"
    discarded, off = send.enqueue("x").id, send.enqueue("x").id
    app.jobs.discard(discarded, why="not today", by="ann")
    app.jobs.archive(discarded, why="by hand", by="ann")
    app.cancel(off, why="withdrawn", by="ann")
    assert read_entries(app, discarded) == [
        (discarded, "enqueued"),
        (discarded, "discard"),
        (discarded, "archive"),
    ]
    assert read_entries(app, off) == [(off, "enqueued"), (off, "cancel"), (off, "cancelled")]
    connection.execute("delete from rota.action")  # they are kept for 90 days
    assert app.jobs.timeline(discarded).entries[-1].text == "archived by ann: by hand"
    assert (
        app.jobs.timeline(first).entries[3].text == f"archived by ann, fixed as job {fixed}: a typo"
    )


@rule("M12", "M85")
def test_a_job_that_waits_for_another_release_says_for_which_and_until_when(
    app: rota.App, connection: Connection
) -> None:
    insert(connection)
    Hand(connection, "old", release="1").send_heartbeat()
    hand = Hand(connection, release="2")
    [job] = hand.claim().jobs
    hand.settle((job, PAYLOAD_MISMATCH), ran_s=None)
    told, waits = app.jobs.timeline(job.id).entries[-2:]
    assert (told.what, waits.what) == ("returned to the queue", "waits")
    assert "; for another release from " in told.text and "retries at" not in told.text
    assert waits.text.startswith("for a release that can read its payload: 2 cannot; at ")
    connection.execute("update rota.job set run_at = rota.clock() - interval '1 min'")
    assert app.jobs.timeline(job.id).entries[-1].what == "waits", "due, and no worker takes it"


def test_there_is_no_timeline_of_a_job_that_is_not_there(app: rota.App) -> None:
    with pytest.raises(rota.JobNotFound):
        app.jobs.timeline(12345)
    with pytest.raises(rota.UsageError):
        app.jobs.timeline("5")  # type: ignore[arg-type]


@rule("M85", "M80")
async def test_a_drain_adds_to_the_figures_and_python_reads_them_sync_and_async(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)
    tries = iter([OSError("no route"), None])

    @app.job("send", retry=rota.Fixed("10s"))
    def send() -> None:
        if error := next(tries):
            raise error

    rows = Rows(connection)
    id_ = (await send.aenqueue()).id
    await app.adrain()
    rows.make_all_due()
    await app.adrain()
    assert (await app.aget(id_)).status == "succeeded"
    now = await app.queues.astats()
    rows.move_clock(2)
    await app.adrain()

    stats = await app.queues.astats(hours=4)  # one more, because an hour may have begun meanwhile
    [send_stats] = stats.types
    assert now.types == stats.types  # a reader adds what no roll-up has counted yet
    assert (
        send_stats.succeeded,
        send_stats.succeeded_late,
        send_stats.retried,
        send_stats.dead,
    ) == (1, 1, 1, 0)
    assert send_stats.ran_p50_s is not None and send_stats.waited_p95_s is not None
    assert (
        stats.jobs == {"queued": 0, "waiting": 0, "running": 0, "failed": 0, "dead": 0}
        and stats.oldest_due_at is None
    )
    assert (await app.jobs.atimeline(id_)).entries[-1].what == "succeeded"
    assert (await app.queues.astats(queue="other")).types == []
    await app.aclose()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [({"hours": 0}, "hours must be"), ({"hours": 745}, "hours"), ({"job_type": 5}, "job_type")],
)
def test_figures_of_what_cannot_be_are_refused(
    app: rota.App, wanted: dict[str, object], message: str
) -> None:
    with pytest.raises(rota.UsageError, match=message):
        app.queues.stats(**wanted)  # type: ignore[arg-type]


@rule("M85")
def test_many_effects_in_a_row_that_are_done_are_shown_as_one_line(
    app: rota.App, database: str, connection: Connection, tmp_path: Path
) -> None:
    @app.job("walk", max_attempts=1, takes_context=True)
    def walk(ctx: rota.Context) -> None:
        for at in range(50):
            ctx.effect(f"note:{at}").call(lambda: None)
        raise ValueError("at the end")

    job = walk.enqueue().id
    app.drain()
    timeline = app.jobs.timeline(job)
    assert len(timeline.entries) == 52
    shown = [(entry.what, entry.text.partition(":")[0]) for entry in fold(timeline.entries)]
    assert shown[:3] == [
        ("enqueued", shown[0][1]), ("effect", "note"), ("effect", "48 more, all done"),
    ]  # fmt: skip
    assert [what for what, _ in shown[3:]] == ["effect", "dead"]
    assert fold(timeline.entries[:7]) == timeline.entries[:7]
    connection.execute("update rota.effect set uncertain_before = 1 where key = 'note:20'")
    shown = [(entry.what, entry.text) for entry in fold(app.jobs.timeline(job).entries)]
    assert [text for what, text in shown if what == "effect"] == [
        shown[1][1], "18 more, all done", shown[3][1],
        "note:20: done; may have happened before (1 time)",
        shown[5][1], "27 more, all done", shown[7][1],
    ]  # fmt: skip
    connection.execute("update rota.effect set uncertain_before = 0")
    shop = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    assert "48 more, all done" in shop("job", str(job)).out
    assert "48 more" not in shop("job", str(job), "--verbose").out
