"""What people see of lanes and caps, and the cap that they set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import rota
from tests.store import work
from tests.store.bulk import no_load_beside
from tests.store.cost import count_blocks
from tests.store.work import SUCCEED, Connection, Hand
from tests.support.rules import rule
from tests.support.server import PostgresServer

Insert = Callable[..., int]

MANY = 20_000
BLOCKS = 2_500
"""Most blocks for a page of a hundred lanes, and for what is read beside the ten thousand jobs of a
lane that are counted."""


@pytest.fixture
def insert(connection: Connection) -> Insert:
    """Insert a job as its row will stand; return its id."""

    def insert(group_key: str | None, status: str = "queued", **columns: Any) -> int:
        if status == "running":
            columns |= {"locked_by": "w", "locked_until": "2100-01-01Z"}
            columns["started_at"] = "2026-01-01Z"
        [id_] = work.insert(connection, group_key=group_key, status=status, **columns)
        return id_

    return insert


@rule("M60")
def test_a_lane_shows_who_holds_it_and_how_many_wait_since_when(
    app: rota.App, connection: Connection, insert: Insert
) -> None:
    runs = insert("invoice:1", "running", in_lane=True)
    first = insert("invoice:1", "waiting", group_capacity=3)
    insert("invoice:1", "failed")
    insert("invoice:1", run_at="2100-01-01Z")
    insert(None)
    insert("over", "dead")
    kept = insert("back-off", "failed", in_lane=True, group_capacity=2, run_at="2100-01-01Z")
    free, invoice = app.groups.list()
    assert (free.group_key, free.capacity, free.held, free.waiting) == ("back-off", 2, 1, 0)
    assert [(holder.id, holder.status) for holder in free.holders] == [(kept, "failed")]
    assert free.oldest_due is None
    seen = (invoice.group_key, invoice.capacity, invoice.held, invoice.waiting)
    assert seen == ("invoice:1", 3, 1, 3)
    [holder] = invoice.holders
    assert (holder.id, holder.job_type, holder.status) == (runs, "t", "running")
    assert holder.since.year == 2026
    assert invoice.oldest_due == app.get(first).run_at
    assert connection.execute(
        "select group_key, capacity, held, waiting, halted_by from rota.groups order by 1"
    ).fetchall() == [("back-off", 2, 1, 0, None), ("invoice:1", 3, 1, 3, None)]


@rule("M60")
def test_a_dead_job_that_halts_its_lane_is_found_alone(app: rota.App, insert: Insert) -> None:
    insert("a", "running", in_lane=True)
    died = insert("b", "dead", in_lane=True, failed_at="2026-02-01Z", waits_for="person")
    insert("b", "waiting")
    insert("c", "dead")
    [halted] = app.groups.list(halted=True)
    assert (halted.group_key, halted.halted_by, halted.held, halted.waiting) == ("b", died, 1, 1)
    assert halted.holders[0].since.month == 2
    assert app.groups.list("b", halted=True) == [halted] == app.groups.list("b")
    assert app.groups.list("a", halted=True) == []
    assert app.groups.list("d") == app.groups.list("c") == []


@rule("M60", "M85")
def test_lanes_are_listed_page_by_page(app: rota.App, insert: Insert) -> None:
    for key in "edcba":
        insert(key, "waiting")
    pages = [app.groups.list(limit=2), app.groups.list(limit=2, after="b")]
    assert [[lane.group_key for lane in page] for page in pages] == [["a", "b"], ["c", "d"]]
    for wrong in ({"limit": 0}, {"after": ""}, {"group_key": 7}, {"halted": 1}):
        with pytest.raises(rota.UsageError):
            app.groups.list(**wrong)
    with pytest.raises(rota.UsageError, match="group_key or after, not both"):
        app.groups.list("a", after="b")


def _blocks(connection: Connection, call: str) -> int:
    return min(count_blocks(connection, f"select * from {call}") for _ in range(2))


@pytest.mark.nightly
@rule("M60", "M85")
def test_a_look_at_lanes_reads_a_page_of_them_and_counts_up_to_a_limit(
    connection: Connection, server: PostgresServer
) -> None:
    load = (
        "insert into rota.job (job_type, queue, priority, group_key, status) "
        "select 't', 'default', 0, {}, 'waiting' from generate_series(1, %s) n"
    )
    search = "rota.jobs_find(null, null, null, null, null, 'lane:777', null, null, null, null, "
    looks = (
        "rota.groups_find()",
        "rota.groups_find(p_after => 'lane:5')",
        "rota.groups_find('lane:777')",
        "rota.groups_find(p_halted => true)",
        search + "null, null, 100, null, null, null)",
    )
    with no_load_beside(server):
        connection.execute(load.format("'one'").encode(), [MANY])
        connection.execute(load.format("'lane:' || n").encode(), [MANY])
        for state in ("right after the load", "analysed"):
            for call in looks:
                assert _blocks(connection, call) < BLOCKS, (call, state)
            # Of a long lane it reads what it counts.
            assert _blocks(connection, "rota.groups_find('one')") < 2 * 10_000 + BLOCKS, state
            connection.execute("analyze rota.job")
        [(waiting,)] = connection.execute("select waiting from rota.groups_find('one')").fetchall()
    assert waiting == 10_000


# Caps


@rule("M60", "M87")
def test_a_queue_is_capped_and_the_audit_log_says_by_whom_and_why(app: rota.App) -> None:
    assert app.queues.set_max_running("email", 20, why="their limit", by="ann", force=True) is None
    assert app.queues.concurrency_limits() == [
        rota.records.ConcurrencyLimit("queue", "email", 20, 0, 0, None)
    ]
    assert app.queues.set_max_running("email", 5, by="ann") == 20
    assert app.queues.set_max_running("email", None, by="bob") == 5
    assert app.queues.concurrency_limits() == []
    assert [
        (entry.verb, entry.queue, entry.by, entry.why, entry.detail) for entry in app.jobs.log()
    ] == [
        ("set_max_running", "email", "bob", None, {"from": 5, "to": None}),
        ("set_max_running", "email", "ann", None, {"from": 20, "to": 5}),
        ("set_max_running", "email", "ann", "their limit", {"from": None, "to": 20}),
    ]


@rule("M15", "M60")
def test_a_cap_that_cannot_be_one_is_refused(app: rota.App, connection: Connection) -> None:
    wrong: tuple[Any, ...] = (0, 100_001, -1, "20", True)
    for most in wrong:
        with pytest.raises(rota.UsageError, match="max_running must be a whole number from 1 to"):
            app.queues.set_max_running("email", most)
    with pytest.raises(rota.UsageError, match="a queue's name must be"):
        app.queues.set_max_running("", 1)
    for arguments, why in (
        ("'q', 0", "max_running must be from 1 to 100000, or NULL for no limit, not 0; to run"),
        ("'', 1", "a queue's name has 1 to 100 characters"),
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=why):
            connection.execute(f"select rota.queue_set_max_running({arguments})".encode())


@rule("M60")
def test_a_cap_shows_how_many_run_and_how_many_wait_since_when(
    app: rota.App, connection: Connection, insert: Insert
) -> None:
    connection.execute(
        "select rota.worker_declare('t', max_running => 3, aliases => '{former}'), "
        "rota.queue_set_max_running('email', 2, p_force => true)"
    )
    insert(None, "running", capped=True)
    insert(None, "running", capped=True, job_type="former", queue="email")
    insert(None, "running", job_type="u")
    insert(None, "waiting", waits_for="type t", waits_since="2026-01-02Z")
    insert("g", "waiting", waits_for="type t", waits_since="2026-01-01Z")
    insert("g", "waiting")
    queue, type_ = app.queues.concurrency_limits()
    assert (queue.kind, queue.name, queue.max_running) == ("queue", "email", 2)
    assert (queue.running, queue.blocked, queue.blocked_since) == (1, 0, None)
    assert (type_.kind, type_.name, type_.max_running) == ("type", "t", 3)
    assert (type_.running, type_.blocked) == (2, 2)
    assert type_.blocked_since is not None
    assert type_.blocked_since.day == 1


@rule("M11", "M60")
def test_jobs_that_wait_for_a_queues_cap_compete_again_once_it_is_raised(
    connection: Connection, insert: Insert
) -> None:
    for raised in ("2", "null"):
        connection.execute("truncate rota.job")
        connection.execute("select rota.queue_set_max_running('default', 1)")
        insert(None, "running", capped=True)
        parked = insert(None, "waiting", waits_for="queue default", waits_since="2026-01-01Z")
        connection.execute("select rota.queue_set_max_running('default', 1)")
        assert _status(connection, parked) == "waiting"
        connection.execute(f"select rota.queue_set_max_running('default', {raised})".encode())
        assert _status(connection, parked) == "queued", raised


@rule("M11", "M60")
def test_jobs_that_wait_for_a_types_cap_compete_again_once_a_deploy_raises_it(
    database: str, connection: Connection, insert: Insert
) -> None:
    for release, most in (("1", 1), ("2", 1), ("3", 2), ("4", None)):
        app = rota.App(database, release=release)
        app.job("t", max_running=most)(lambda: None)
        app.sync()
        app.close()
        if release == "1":
            insert(None, "running", capped=True)
            first = insert(None, "waiting", waits_for="type t", waits_since="2026-01-01Z")
            last = insert(None, "waiting", waits_for="type t", waits_since="2026-01-01Z")
        assert _status(connection, first) == ("waiting" if release < "3" else "queued")
        assert _status(connection, last) == ("waiting" if release < "4" else "queued")


def _status(connection: Connection, job: int) -> str:
    [(status,)] = connection.execute("select status from rota.job where id = %s", [job]).fetchall()
    return str(status)


# A job


@rule("M21", "M85")
def test_jobs_are_found_by_their_lane(
    app: rota.App, connection: Connection, insert: Insert
) -> None:
    other, live = insert("h"), insert("g", "waiting")
    insert(None)
    runs = insert("i", "running", in_lane=True)
    dead, halts = insert("i", "dead"), insert("i", "dead", in_lane=True)
    hand = Hand(connection)
    hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))
    assert [job.id for job in app.find(group_key="g")] == [live]
    assert [job.id for job in app.find(group_key="i")] == [halts, dead, runs]
    assert [job.id for job in app.find(group_key="i", status="running")] == [runs]
    assert [job.id for job in app.find(group_key="h", status="succeeded")] == [other]
    with pytest.raises(rota.UsageError, match="group_key must be 1 to 255"):
        app.find(group_key="")


@rule("M36", "M60")
def test_an_expired_job_says_what_it_waited_for(connection: Connection, insert: Insert) -> None:
    runs = insert("g", "running", in_lane=True)
    past, soon = "2026-01-01Z", "2026-01-02Z"
    laned = insert("g", "waiting", expires_at=past)
    cap = insert(None, "waiting", waits_for="type t", expires_at=past, attempts=2, error_type="E")
    limited = insert(None, waits_for="limit smtp", expires_at=past, run_at="2100-01-01Z")
    broken = insert(None, waits_for="breaker api a", expires_at=soon, run_at="2100-01-01Z")
    connection.execute("update rota.job set run_at = '2025-12-31Z' where status = 'waiting'")
    said: dict[int, str] = dict(
        connection.execute(
            "select j.id, rota.expiry_reason(j) from rota.job j where expires_at is not null"
        ).fetchall()
    )
    assert said[laned] == f"it waited for its ordered group 'g', held by job {runs} (running)"
    assert said[cap].startswith("it waited for a free slot of type t; attempts that failed")
    assert said[limited].startswith("it was delayed by rate limit smtp until 2100-01-01")
    assert said[broken].startswith("it was delayed by breaker api a until 2100-01-01")
