"""The functions for workers in other languages: what they answer, and that a worker that lost its
job cannot write for it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import rota
from rota.model.retry import Exponential
from tests.pure.test_redaction import URLS_AND_NAMES
from tests.store.cost import count_blocks
from tests.store.planned import at, set_clock
from tests.store.work import Connection, Hand, drop_days, expire, insert
from tests.support.rules import rule

LOST = "RT001"


class Shell:
    """A worker that can call functions and nothing else."""

    def __init__(
        self,
        connection: Connection,
        name: str = "shell",
        queue: str = "default",
        types: tuple[str, ...] = ("t",),
    ) -> None:
        self.connection = connection
        self.name = name
        self.queue = queue
        self.types = list(types)
        self.seen: dict[str, Any] = {}

    def call(self, function: str, *values: Any, **named: Any) -> list[dict[str, Any]]:
        given = [sql.Placeholder() for _ in values] + [
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder()) for name in named
        ]
        statement = sql.SQL("select * from rota.{}({})").format(
            sql.Identifier(function), sql.SQL(", ").join(given)
        )
        done = self.connection.execute(statement, [*values, *named.values()])
        columns = [column.name for column in done.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in done]

    def claim(self, count: int = 1, **named: Any) -> list[dict[str, Any]]:
        """Claim, from where the last claim ended."""
        rows = self.call(
            "claim", self.queue, self.types, self.name, count, after=Jsonb(self.seen), **named
        )
        self.seen = rows[-1].pop("seen")
        return [row for row in rows if row["id"] is not None]

    def look_at_everything(self) -> None:
        """Let the next claim look from the beginning, as one a minute does."""
        self.seen["whole_at"] = "2026-01-01 00:00:00+00"

    def claim_job(self) -> tuple[int, int]:
        (job,) = self.claim()
        return job["id"], job["claims"]

    def ids(self, count: int = 1) -> list[int]:
        return [job["id"] for job in self.claim(count)]


@pytest.fixture
def shell(shared: Connection) -> Shell:
    return Shell(shared)


def _row(connection: Connection, id_: int) -> dict[str, Any]:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("select * from rota.jobs where id = %s", [id_]).fetchone()
    assert row is not None
    return row


def _refused(shell: Shell, function: str, *values: Any) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        shell.call(function, *values)
    return caught.value.sqlstate


@rule("M15", "M31")
def test_a_job_claimed_in_sql_is_leased_by_its_type_and_what_it_came_to_is_seen_in_python(
    shell: Shell, app: rota.App
) -> None:
    shell.call("worker_declare", "t", lease="50 s", max_attempts=4)
    (made,) = shell.call("enqueue", "t", Jsonb({"a": 1}), priority=7)
    (job,) = shell.claim()
    assert job["timeout"] == timedelta(minutes=5)
    shell.call("enqueue", "t", timeout="90 s")
    assert [claimed["timeout"] for claimed in shell.claim()] == [timedelta(seconds=90)]
    assert (job["id"], job["payload"], job["attempt"], job["max_attempts"], made["created"]) == (
        made["id"],
        {"a": 1},
        1,
        4,
        True,
    )
    row = _row(shell.connection, job["id"])
    assert (row["status"], row["locked_by"], row["priority"]) == ("running", "shell", 7)
    assert row["locked_until"] - row["started_at"] == timedelta(seconds=50)
    shell.call("worker_progress", job["id"], job["claims"], 1, 2, "half")
    assert shell.call("succeed", job["id"], job["claims"], Jsonb({"rows": 3})) == [
        {"succeed": "succeeded"}
    ]
    seen = app.get(job["id"])
    assert (seen.status, seen.result, seen.locked_by) == (
        rota.Status.SUCCEEDED,
        {"rows": 3},
        "shell",
    )
    assert seen.progress is not None and (seen.progress.done, seen.progress.note) == (1, "half")


def _tried(shell: Shell, job: int, claim: int) -> dict[str, str | None]:
    """Try every write for a claim; return the SQLSTATE that refuses each."""
    calls: dict[str, tuple[Any, ...]] = {
        "worker_renew": (), "worker_progress": (1.0,), "worker_hand_back": (),
        "worker_wait_for": ([job + 1],), "worker_results": (),
        "snooze": (timedelta(minutes=1),), "fail": ("Error",), "succeed": (),
    }  # fmt: skip
    return {name: _refused(shell, name, job, claim, *more) for name, more in calls.items()}


@rule("M15", "M32")
def test_a_worker_in_sql_that_lost_its_lease_can_write_nothing(
    shell: Shell, shared: Connection
) -> None:
    insert(shared)
    job, claim = shell.claim_job()
    expire(shared)
    assert len(Hand(shared).reap()) == 1
    after = _row(shared, job)
    assert set(_tried(shell, job, claim).values()) == {LOST}
    assert _row(shared, job) == after
    assert Shell(shared, "other").ids() == [job]
    assert set(_tried(shell, job, claim).values()) == {LOST}


@rule("M15", "M32")
def test_the_number_of_a_job_that_no_worker_holds_is_no_claim(
    shell: Shell, shared: Connection
) -> None:
    (queued,) = insert(shared)
    assert set(_tried(shell, queued, 0).values()) == {LOST}
    job, claim = shell.claim_job()
    shell.call("fail", job, claim, "Error", fatal=True)
    assert set(_tried(shell, job, claim + 1).values()) == {LOST}
    assert _row(shared, job)["status"] == "dead"
    assert set(_tried(shell, 10**15, 1).values()) == {LOST}


@rule("M15", "M50")
def test_asked_again_after_a_lost_answer_an_end_says_the_same(
    shell: Shell, shared: Connection
) -> None:
    insert(shared, 2)
    (first, claim), (second, other) = shell.claim_job(), shell.claim_job()
    assert [shell.call("succeed", first, claim)[0]["succeed"] for _ in range(2)] == [
        "succeeded"
    ] * 2
    said = [shell.call("fail", second, other, "OSError", "no route") for _ in range(2)]
    assert said[0] == said[1] and said[0][0]["status"] == "failed"
    assert _row(shared, second)["attempts"] == 1
    assert shared.execute("select count(*) from rota.attempt").fetchone() == (1,)


@rule("M15", "M40", "M42")
def test_a_failure_follows_the_plan_stored_with_the_type_as_in_python(
    shell: Shell, shared: Connection
) -> None:
    shell.call("worker_declare", "t", max_attempts=3, retry_after=["10 s", "60 s"])
    insert(shared)
    for attempt, plan_s in ((1, 10.0), (2, 60.0)):
        job, claim = shell.claim_job()
        (answer,) = shell.call(
            "fail", job, claim, "OSError", "no route to host", response_code=503, stack="a\nb"
        )
        row = _row(shared, job)
        assert answer["status"] == "failed"
        delay_s = (answer["run_at"] - row["failed_at"]).total_seconds()
        assert plan_s * 0.75 <= delay_s <= plan_s * 1.25 and delay_s != plan_s
        assert (row["attempts"], row["error_type"], row["last_error"], row["response_code"]) == (
            attempt,
            "OSError",
            "no route to host",
            503,
        )
        shared.execute("update rota.job set run_at = now()")
    job, claim = shell.claim_job()
    assert shell.call("fail", job, claim, "OSError")[0]["status"] == "dead"
    kept = shared.execute(
        "select attempt, outcome, worker, verdict from rota.attempt order by attempt"
    ).fetchall()
    assert kept == [
        (1, "failed", "shell", "transient"),
        (2, "failed", "shell", "transient"),
        (3, "dead", "shell", "transient"),
    ]


@rule("M15", "M40", "M41")
def test_a_failure_may_be_fatal_or_say_itself_when_to_try_again(
    shell: Shell, shared: Connection
) -> None:
    insert(shared, 2)
    (first, claim), (second, other) = shell.claim_job(), shell.claim_job()
    assert shell.call("fail", first, claim, "ValueError", "bad", fatal=True)[0]["status"] == "dead"
    assert _row(shared, first)["verdict"] == "fatal"
    (answer,) = shell.call("fail", second, other, "Busy", retry_after=timedelta(minutes=7))
    assert answer["run_at"] - _row(shared, second)["failed_at"] == timedelta(minutes=7)
    assert _row(shared, second)["last_error"] == "Busy"


@rule("M15")
def test_a_type_declared_in_sql_gets_what_one_declared_in_python_gets(
    shell: Shell, shared: Connection, app: rota.App
) -> None:
    app.job("python")(lambda: None)
    app.sync()
    shell.call("worker_declare", "sql")
    with shared.cursor(row_factory=dict_row) as cursor:
        python, shells = cursor.execute("select * from rota.job_type order by name").fetchall()
    differ = {name for name in python if python[name] != shells[name]}
    assert differ == {"name", "release", "declared_at", "retry_after"}
    plan = [timedelta(seconds=delay_s) for delay_s in Exponential("10s", cap="1h").plan_s(11)]
    assert python["retry_after"][:10] == shells["retry_after"] == plan
    shell.call("worker_declare", "python", queue="other")
    assert app.get(shell.call("enqueue", "python")[0]["id"]).queue == "other"
    app.sync()
    assert app.get(shell.call("enqueue", "python")[0]["id"]).queue == "default"


@rule("M15")
def test_a_declaration_that_no_job_could_be_made_of_is_refused(shell: Shell) -> None:
    declarations: list[dict[str, Any]] = [
        {"queue": ""}, {"priority": 101}, {"max_attempts": 0}, {"lease": "0.5 s"},
        {"retry_after": []}, {"retry_after": ["0 s"]},
        {"retry_after": [None]}, {"expires": "0 s"}, {"history": "none"}, {"on_lost": "wait"},
        {"on_expired": "wait"}, {"on_expired": None},
        {"aliases": ["t"]}, {"version": 0}, {"release": ""},
        {"group_arguments": [None]}, {"group_capacity": 0}, {"on_retry": "x"}, {"on_dead": None},
        {"max_running": 0},
    ]  # fmt: skip
    for wrong in declarations:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=next(iter(wrong))):
            shell.call("worker_declare", "t", **wrong)


@rule("M15")
def test_a_claim_that_makes_no_sense_is_refused(shell: Shell) -> None:
    for values in (("", ["t"], "w", 1), ("q", [None], "w", 1), ("q", ["t"], "w", 1001)):
        assert _refused(shell, "claim", *values) == "22023"


@rule("M15", "M51")
def test_an_enqueue_in_sql_answers_for_a_taken_key_as_python_does(
    shell: Shell, app: rota.App
) -> None:
    handler = app.job("t", queue="q", priority=3)(lambda: None)
    app.sync()
    (first,) = shell.call("enqueue", "t", idempotency_key="k")
    assert (first["created"], app.get(first["id"]).queue, app.get(first["id"]).priority) == (
        True,
        "q",
        3,
    )
    assert shell.call("enqueue", "t", idempotency_key="k") == [
        {"id": first["id"], "created": False, "status": "queued", "change": None}
    ]
    assert handler.using(key="k").enqueue() == rota.Enqueued(first["id"], False, "queued")
    app.cancel(first["id"])
    assert shell.call("enqueue", "t", idempotency_key="k")[0]["created"] is True


@rule("M15", "M36")
def test_an_expired_job_is_dead_and_not_handed_out(shell: Shell, shared: Connection) -> None:
    late = insert(shared, 3, expires_at="now")
    (good,) = insert(shared)
    assert shell.ids() == [good]
    for job in late:
        row = _row(shared, job)
        assert (row["status"], row["error_type"], row["attempts"]) == ("dead", "Expired", 0)


@rule("M15", "M36", "M51")
def test_an_expired_job_of_a_type_that_drops_is_cancelled_and_not_handed_out(
    shell: Shell, shared: Connection
) -> None:
    shell.call("worker_declare", "t", on_expired="drop")
    late = insert(shared, expires_at="now", idempotency_key="k")
    (good,) = insert(shared)
    assert shell.ids() == [good]
    [row] = shared.execute(
        "select id, status, attempts, started_at, cancel_reason from rota.job_history"
    ).fetchall()
    assert row[:4] == (*late, "cancelled", 0, None)
    assert row[4].startswith("expired: not started before expires_at (")
    assert row[4].endswith("): it was claimed too late")
    assert shared.execute("select job from rota.idempotency").fetchall() == []
    assert shared.execute("select from rota.attempt").fetchall() == []


@rule("M15", "M33")
def test_a_claim_in_sql_is_a_start_so_a_job_that_may_begin_once_is_not_handed_out_again(
    shell: Shell, shared: Connection
) -> None:
    (once,) = insert(shared, max_attempts=1)
    (plain,) = insert(shared)
    assert shell.ids(2) == [once, plain]
    expire(shared)
    Hand(shared).reap()
    assert (_row(shared, once)["status"], _row(shared, plain)["status"]) == ("dead", "queued")
    assert shell.ids(2) == [plain]
    expire(shared)
    Hand(shared).reap()
    assert _row(shared, plain)["status"] == "failed", "the second loss counts"


@rule("M15", "M87")
def test_a_renewal_says_whether_a_cancel_was_requested_and_what_then_ends_is_cancelled(
    shell: Shell, shared: Connection, app: rota.App
) -> None:
    insert(shared, 3)
    held = [shell.claim_job() for _ in range(3)]
    (kept,) = shell.call("worker_renew", *held[0])
    assert (kept["cancel_requested"], kept["cancel_reason"]) == (False, None)
    for job, _ in held:
        app.cancel(job, why="not needed")
    (told,) = shell.call("worker_renew", *held[0])
    assert (told["cancel_requested"], told["cancel_reason"]) == (True, "not needed")
    assert shell.call("worker_hand_back", *held[0])[0]["status"] == "cancelled"
    assert shell.call("fail", *held[1], "Error")[0]["status"] == "cancelled"
    assert shell.call("succeed", *held[2])[0]["succeed"] == "succeeded"


@rule("M15", "M31")
def test_a_renewal_extends_the_lease_by_the_type_s_also_while_the_worker_s_row_is_locked(
    connection: Connection, second: Connection
) -> None:
    shell = Shell(connection)
    shell.call("worker_declare", "t", lease="1 h")
    insert(connection)
    job, claim = shell.claim_job()
    connection.execute(
        "update rota.job set locked_until = now() + interval '1 s'; update rota.worker set "
        "heartbeat_at = now() - interval '1 min'"
    )
    with second.transaction():
        second.execute("select from rota.worker for update")
        (answer,) = shell.call("worker_renew", job, claim)
    assert answer["locked_until"] > _row(connection, job)["started_at"] + timedelta(minutes=59)


@rule("M15", "M11")
def test_a_worker_in_sql_lets_a_job_wait_for_others_and_reads_what_came_of_them(
    shell: Shell, shared: Connection
) -> None:
    insert(shared, 3)
    (job, claim), *others = shell.claim_job(), shell.claim_job(), shell.claim_job()
    assert shell.call("worker_results", job, claim) == []
    ids = [id_ for id_, _ in others]
    (answer,) = shell.call("worker_wait_for", job, claim, ids)
    assert answer["status"] == "waiting"
    assert (_row(shared, job)["attempts"], _row(shared, job)["waits_for"]) == (0, f"job {ids[-1]}")
    shell.call("succeed", *others[0], Jsonb({"rows": 3}))
    shell.call("fail", *others[1], "Error", "no route", fatal=True)
    assert shared.execute("select released from rota.waits_sweep('job ', 10)").fetchone() == (1,)
    (again, claim) = shell.claim_job()
    assert again == job
    assert [tuple(row.values()) for row in shell.call("worker_results", job, claim)] == [
        (ids[0], ids[0], "succeeded", {"rows": 3}, None, None),
        (ids[1], ids[1], "dead", None, "Error", "no route"),
    ]


@rule("M15")
def test_a_wait_in_sql_that_makes_no_sense_is_refused(shell: Shell, shared: Connection) -> None:
    insert(shared)
    job, claim = shell.claim_job()
    waits: list[tuple[Any, str, str]] = [
        ([], "continue", "one at least"),
        ([0], "continue", "must be ids"),
        ([None], "continue", "must be ids"),
        ([5], "never", "on_failure"),
        (list(range(job + 1, job + 1_002)), "continue", "at most 1,000"),
        ([job], "continue", "for itself"),
    ]
    for jobs, on_failure, says in waits:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=says):
            shell.call("worker_wait_for", job, claim, jobs, on_failure)


@rule("M15")
def test_a_snoozed_job_waits_and_one_handed_back_is_due_at_once_both_uncharged(
    shell: Shell, shared: Connection
) -> None:
    insert(shared, 2)
    (first, claim), (second, other) = shell.claim_job(), shell.claim_job()
    (answer,) = shell.call("snooze", first, claim, timedelta(minutes=5))
    row = _row(shared, first)
    assert (row["status"], row["attempts"], answer["run_at"] - row["updated_at"]) == (
        "queued",
        0,
        timedelta(minutes=5),
    )
    shell.call("worker_hand_back", second, other)
    assert (_row(shared, second)["status"], _row(shared, second)["attempts"]) == ("queued", 0)
    assert shell.ids(2) == [second]


@rule("M15", "M84")
def test_a_worker_in_sql_is_a_worker_among_the_others_until_it_leaves(
    shell: Shell, shared: Connection
) -> None:
    set_clock(shared, "2026-03-01 12:00:00")
    shell.claim(release="7")
    assert shared.execute(
        "select name, release, job_types, stopped_at from rota.worker"
    ).fetchall() == [("shell", "7", ["t"], None)]
    version = shared.execute("select xmin::text, heartbeat_at from rota.worker").fetchone()
    set_clock(shared, "2026-03-01 12:00:05")
    shell.claim(release="7")
    assert (
        shared.execute("select xmin::text, heartbeat_at from rota.worker").fetchone() == version
    ), "no write within five seconds"
    set_clock(shared, "2026-03-01 12:00:06")
    shell.claim(release="7")
    assert shared.execute("select heartbeat_at from rota.worker").fetchone() == (
        at("2026-03-01 12:00:06"),
    )
    Shell(shared, queue="more", types=("u",)).claim(release="7")
    row = shared.execute("select job_types, queues from rota.worker").fetchone()
    assert row == (["t", "u"], {"default": None, "more": None})
    shell.call("worker_leave", "shell")
    assert shared.execute("select from rota.worker where stopped_at is null").fetchall() == []
    shell.claim(release="7")
    assert len(shared.execute("select from rota.worker where stopped_at is null").fetchall()) == 1


# Where it looks


@rule("M15", "M61")
def test_claims_in_sql_take_the_most_urgent_first_and_find_every_priority(
    shell: Shell, shared: Connection
) -> None:
    made = {priority: insert(shared, priority=priority)[0] for priority in (0, -100, 5, 100, 42)}
    insert(shared, job_type="unknown", priority=50)
    insert(shared, queue="other")
    insert(shared, run_at="8000-01-01 00:00:00+00")
    assert shell.ids(2) + shell.ids(100) == [made[priority] for priority in (100, 42, 5, 0, -100)]
    (late,) = insert(shared, priority=77)
    assert shell.ids(10) == [late]


@rule("M15")
def test_a_job_under_a_former_name_goes_to_the_worker_of_the_new_one_under_that_name(
    shell: Shell, shared: Connection
) -> None:
    shell.call("worker_declare", "t", aliases=["old"])
    (job,) = insert(shared, job_type="old")
    assert [(claimed["id"], claimed["job_type"]) for claimed in shell.claim()] == [(job, "t")]


@rule("M14", "M15")
def test_a_claim_in_sql_walks_over_what_is_gone_once_and_not_again(
    connection: Connection, second: Connection
) -> None:
    shell = Shell(connection)
    _insert_large(connection, "2026-01-01 00:00:00+00")
    with second.transaction():  # so that no dead entry can be removed, nor marked as dead
        second.execute("set transaction isolation level repeatable read")
        second.execute("select from rota.job limit 1")
        for _ in range(3):
            shell.claim(1000)
            connection.execute("delete from rota.job where status = 'running'")
        assert _blocks(shell) < 300, "it goes on behind the last job"
        _insert_large(connection, "2026-01-02 00:00:00+00")
        connection.execute("delete from rota.job")  # another worker was faster
        shell.claim()
        assert _blocks(shell) < 300, "where it found nothing it goes on from then"
        shell.look_at_everything()
        assert _blocks(shell) > 1000, "and the guard itself: a look at everything shows"


def _insert_large(connection: Connection, run_at: str) -> None:
    """Insert 3,000 jobs, five to a block, that are due since then."""
    connection.execute("set session_replication_role = replica")  # run_at stays as it is given
    insert(connection, 3000, run_at=run_at, payload=Jsonb({"text": "x" * 1500}))
    connection.execute("reset session_replication_role")


def _blocks(shell: Shell) -> int:
    """How many blocks the second of two claims reads: the first plans."""
    for _ in range(2):
        with shell.connection.transaction(force_rollback=True):
            read = count_blocks(
                shell.connection,
                "select * from rota.claim(%s, %s, %s, after => %s)",
                [shell.queue, shell.types, shell.name, Jsonb(shell.seen)],
            )
    return read


@rule("M15", "M14")
def test_what_becomes_claimable_behind_the_frontier_is_found_when_asked_for_or_at_the_next_look(
    shell: Shell, shared: Connection
) -> None:
    job, reaped = insert(shared, 2, run_at="2026-01-01 00:00:00+00")
    shared.execute("update rota.job set run_at = '2026-01-01' where id = %s", [job])
    held = {claimed["id"]: claimed["claims"] for claimed in shell.claim(3)}
    shell.claim()  # reached the end
    shell.call("worker_hand_back", job, held[job])
    shared.execute("update rota.job set run_at = '2026-01-01' where id = %s", [job])
    assert shell.ids(2) == [job], "a hand-back asks all workers to look back"
    shared.execute(
        "update rota.job set status = 'queued', locked_by = null, locked_until = null, run_at = "
        "'2026-01-01' where id = %s",
        [reaped],
    )
    assert shell.ids() == []
    shell.look_at_everything()
    assert shell.ids() == [reaped]


@rule("M15", "M14")
def test_an_import_that_committed_late_is_taken_to_its_end_once_a_look_has_found_it(
    shell: Shell, shared: Connection
) -> None:
    shell.claim()
    late = insert(shared, 5)
    shared.execute("update rota.job set run_at = now() - interval '1 h'")
    shell.look_at_everything()
    found = shell.ids()
    assert found + shell.ids(2) + shell.ids(2) == late


@rule("M15", "M14")
def test_a_claim_in_sql_looks_from_the_beginning_every_ten_seconds_however_often_it_is_made(
    shell: Shell, shared: Connection
) -> None:
    _come_to_the_end(shell, shared)
    behind = _behind(shared, "2026-03-01 11:00:00+00")
    for second in (2, 4, 6, 9):
        set_clock(shared, f"2026-03-01 12:00:0{second}")
        assert shell.ids() == []
    set_clock(shared, "2026-03-01 12:00:11")
    assert shell.ids() == [behind]


@rule("M15")
def test_a_job_that_commits_a_few_seconds_late_is_found_by_the_next_claim_in_sql(
    shell: Shell, shared: Connection
) -> None:
    _come_to_the_end(shell, shared)
    late = _behind(shared, "2026-03-01 11:59:56+00")
    _behind(shared, "2026-03-01 11:59:54+00")
    assert shell.ids(2) == [late]


@rule("M15", "M14")
def test_a_request_to_look_back_that_commits_after_the_claim_is_heeded_by_the_next(
    connection: Connection, second: Connection
) -> None:
    shell = Shell(connection)
    job, *_ = insert(connection, 2, run_at="2026-01-01 00:00:00+00")
    connection.execute("update rota.job set run_at = '2026-01-01' where id = %s", [job])
    held = {claimed["id"]: claimed["claims"] for claimed in shell.claim(2)}
    shell.claim()
    with second.transaction():
        second.execute("select rota.worker_hand_back(%s, %s)", [job, held[job]])
        second.execute("update rota.job set run_at = '2026-01-01' where id = %s", [job])
        assert shell.ids() == []
    assert shell.ids() == [job]


@rule("M15", "M61")
def test_a_request_to_look_back_holds_for_the_lower_priorities_until_they_are_looked_at(
    shell: Shell, shared: Connection
) -> None:
    (low,) = insert(shared, priority=0)
    urgent = insert(shared, 3, priority=10)
    shared.execute("update rota.job set run_at = '2026-01-01' where id = %s", [low])
    held = {claimed["id"]: claimed["claims"] for claimed in shell.claim(10)}
    shell.claim()
    urgent = insert(shared, 2, priority=10)
    shell.call("worker_hand_back", low, held[low])
    shared.execute("update rota.job set run_at = '2026-01-01' where id = %s", [low])
    assert [*shell.ids(), *shell.ids()] == urgent
    assert shell.ids() == [low]


@rule("M15")
def test_a_position_serves_the_queue_and_the_types_that_it_was_made_for_only(
    shell: Shell, shared: Connection
) -> None:
    _come_to_the_end(shell, shared)
    typed = _behind(shared, "2026-03-01 11:00:00+00", job_type="u")
    other = _behind(shared, "2026-03-01 11:00:00+00", queue="other")
    assert shell.ids() == []
    shell.types = ["t", "u"]
    assert shell.ids() == [typed]
    shell.claim()
    shell.queue = "other"
    assert shell.ids() == [other]


def _come_to_the_end(shell: Shell, connection: Connection) -> None:
    """Let a worker see all of its queue, at noon."""
    set_clock(connection, "2026-03-01 12:00:00")
    insert(connection)
    shell.claim_job()
    assert shell.ids() == []


def _behind(connection: Connection, run_at: str, **columns: Any) -> int:
    """Insert a job that is due since then, as an import does that commits late."""
    (job,) = insert(connection, **columns)
    connection.execute("update rota.job set run_at = %s where id = %s", [run_at, job])
    return job


# Together with others


@rule("M15", "M30")
def test_workers_in_sql_and_in_python_get_each_job_once(
    connection: Connection, second: Connection
) -> None:
    shell = Shell(connection)
    ids = insert(connection, 30)
    with connection.transaction():
        mine = shell.ids(10)
        others = Shell(second, "other").ids(10)
        python = [job.id for job in Hand(second).claim(10).jobs]
    assert sorted(mine + others + python) == ids


@rule("M15", "M45")
def test_what_a_shell_says_of_an_error_is_stored_on_one_line_without_secrets(
    shell: Shell, shared: Connection
) -> None:
    insert(shared)
    text = (
        "first\nsecond\t\x1b[31mred \u2028 postgres://me:p/w@db/x password=hunter2 "
        '{"api_key": "a b"} ' + "x" * 900
    )
    job, claim = shell.claim_job()
    shell.call("fail", job, claim, "My\nError", text, stack="line 1\n token = abc1\x07\nline 3")
    row = _row(shared, job)
    assert row["error_type"] == "My Error" and len(row["last_error"]) == 500
    assert row["last_error"].startswith(
        'first second [31mred postgres://***@db/x password=*** {"api_key": ***} xxx'
    )
    stack = shared.execute("select stack from rota.attempt").fetchone()
    assert stack == ("line 1\n token = ***\ufffd\nline 3",) or stack == (
        "line 1\n token = ***\nline 3",
    )


@rule("M15", "M45")
def test_what_a_shell_says_has_no_password_of_a_url_or_after_a_name(shared: Connection) -> None:
    redacted = shared.execute(
        "select given, rota.redact(given, 500) from unnest(%s::text[]) given",
        ([text for text, _ in URLS_AND_NAMES],),
    ).fetchall()
    assert redacted == URLS_AND_NAMES


@rule("M15", "M45")
def test_a_long_text_that_is_hard_to_search_costs_little_time(shared: Connection) -> None:
    beyond = "select rota.redact('password=\"' || repeat('a', 10000) || '\" and so on', 500)"
    assert shared.execute(beyond).fetchone() == ("password=***",), (
        "what lies far beyond what is shown is not searched"
    )
    # Without a limit it would take half an hour.
    shared.execute("set statement_timeout = '30 s'")
    assert shared.execute(
        "select length(rota.redact(repeat('token:''a', 100000), 500))"
    ).fetchone() == (500,)


@rule("M15")
def test_a_result_that_is_too_large_is_left_out_with_a_warning(
    shell: Shell, shared: Connection
) -> None:
    insert(shared)
    heard: list[str] = []
    shared.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    job, claim = shell.claim_job()
    shell.call("succeed", job, claim, Jsonb("x" * 70_000))
    assert heard == [f"the result of job {job} is over 64 KiB and is not kept"]
    assert (_row(shared, job)["status"], _row(shared, job)["result"]) == ("succeeded", None)


@rule("M15", "M13")
def test_the_first_end_of_a_day_makes_the_day_s_partition(shell: Shell, shared: Connection) -> None:
    insert(shared, 3)
    held = [shell.claim_job() for _ in range(3)]
    for function, more in (("succeed", ()), ("fail", ("Error",)), ("worker_hand_back", ())):
        drop_days(shared, "job_history", "attempt")
        shell.call(function, *held.pop(), *more)
    assert shared.execute("select count(*) from rota.job").fetchone() == (2,)


@rule("M15", "M87")
def test_a_worker_in_sql_gets_nothing_from_a_paused_queue_and_everything_after(
    shell: Shell, shared: Connection, app: rota.App
) -> None:
    shell.claim()
    app.queues.pause("default")
    jobs = insert(shared, 3)
    shared.execute("update rota.job set run_at = now() - interval '1 h'")
    shell.look_at_everything()
    assert [shell.ids(10) for _ in range(2)] == [[], []]
    app.queues.resume("default")
    assert shell.ids(10) == jobs


BAD_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"job_type": ""}, "job_type must be 1 to 200 characters, not 0"),
    ({"payload": Jsonb([1])}, "payload must be a JSON object, as in .*, not array"),
    (
        {"payload": Jsonb({"a": "x" * 65_536})},
        "payload is 65545 bytes, over the limit of 65536: store the data elsewhere",
    ),
    ({"queue": ""}, "queue must be 1 to 100 characters, not 0; leave it out for the type's"),
    ({"priority": 1000}, "priority must be from -100 to 100, not 1000"),
    ({"run_at": "infinity"}, "run_at must lie from the year 1970 to before 9000, not at infinity"),
    ({"expires_at": "infinity"}, "expires_at must lie .*, not at infinity; leave it out for never"),
    ({"max_attempts": 10_001}, "max_attempts must be from 1 to 10000, not 10001"),
    ({"timeout": "36526 days"}, "timeout must be from 1 ms to a hundred years, not "),
    (
        {"idempotency_key": "k" * 256},
        "idempotency_key must be 1 to 255 characters, not 256; hash a longer one",
    ),
    ({"meta": Jsonb("text")}, "meta must be a JSON object, not string"),
    ({"payload_version": 0}, "payload_version must be from 1 to 32767, not 0"),
]


@rule("M15")
def test_what_cannot_be_enqueued_or_requeued_by_a_function_is_said_in_words_and_nothing_is_written(
    shared: Connection, shell: Shell
) -> None:
    for given_badly, says in BAD_JOBS:
        with pytest.raises(psycopg.errors.CheckViolation, match=f"^rota.job: {says}"):
            shell.call("enqueue", **{"job_type": "t", **given_badly})
    assert shared.execute("select count(*) from rota.job").fetchone() == (0,)
    shared.execute("select rota.ids_reserve(7)")
    shared.execute(
        "insert into rota.job (id, job_type, status, failed_at) values (7, 't', 'dead', now())"
    )
    with pytest.raises(psycopg.errors.CheckViolation, match=r"^rota.job: payload must"):
        shell.call("job_requeue", [7], "why", "who", Jsonb([1]))
    with pytest.raises(
        psycopg.errors.InvalidParameterValue,
        match="p_payload_version must be from 1 to 32767, not -1; nothing was changed",
    ):
        shared.execute(
            "select * from rota.job_requeue('{7}', p_payload => '{}', p_payload_version => "
            "-1::smallint)"
        )
    for function in ("queue_pause('q', 'infinity')", "pause_all('infinity')"):
        with pytest.raises(
            psycopg.errors.InvalidParameterValue,
            match="until must lie before the year 9000, not at infinity",
        ):
            shared.execute(f"select * from rota.{function}".encode())
    assert shared.execute("select id, status from rota.job").fetchall() == [(7, "dead")]
    fine = {
        "job_type": "t" * 200,
        "priority": -100,
        "run_at": "-infinity",
        "max_attempts": 1,
        "idempotency_key": "k" * 255,
        "meta": Jsonb({}),
    }
    [enqueued] = shell.call(
        "enqueue", **fine, queue="q" * 100, expires_at="9199-12-31Z", payload_version=32_767
    )
    assert enqueued["created"]


@rule("M15")
def test_what_the_functions_refuse_is_what_the_table_refuses(shared: Connection) -> None:
    for given_badly, _ in BAD_JOBS:
        columns = {"job_type": "t", **given_badly}
        statement = sql.SQL("insert into rota.job ({}) values ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(sql.Placeholder() * len(columns)),
        )
        with pytest.raises(psycopg.Error):
            shared.execute(statement, list(columns.values()))
