"""How soon a job is started, for any producer and any time of the commit, with and without
notifications."""

from __future__ import annotations

import asyncio
import math
from time import monotonic
from typing import Any

import psycopg
import pytest

import rota
from rota.declare.config import WorkerConfig
from rota.observe.events import JobClaimed, JobSnoozed, JobSucceeded
from rota.store import listen
from rota.store.statements import Statements
from rota.worker.claimer import Claimer
from rota.worker.frontier import DEPTHS_S
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, connected, put, put_many, rows, value

RARE: dict[str, Any] = {"poll_least_s": 3600.0, "poll_s": 3600.0, "listening_poll_s": 3600.0}
"""Polls so rare that every job is found through a notification."""
MANY = 1_000
"""Workers that share a queue: none asks what is due just because it has found a job."""
LISTENING = """
select pid from pg_stat_activity
where datname = current_database() and application_name = 'rota listen' and state = 'idle'
  and query like '%%insert into rota.queue%%'"""
AT_REST = (
    "select pid from pg_stat_activity where pid = any (%s) and state = 'idle' "
    "and clock_timestamp() - state_change > %s * interval '1 s'"
)


async def wait_for_request(connection: Connection, hand: Hand) -> None:
    """Have an idle worker claim until it has asked for wake-ups and is at rest."""

    def has_asked() -> bool:
        hand.look()  # an idle worker asks with its second look
        return bool(
            rows(
                connection, "select from rota.queue where waiting::text like %s", f"% {hand.name}%"
            )
        )

    await aeventually(has_asked)
    await aeventually(lambda: rows(connection, LISTENING))
    await aeventually(lambda: rows(connection, AT_REST, connected(connection, "claim"), 0.2))


@rule("M15", "M81")
async def test_a_notification_starts_a_plain_insert_long_before_the_next_poll(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with Hand(database, jobs, **RARE) as hand:
        await wait_for_request(connection, hand)
        await hand.heard(JobSucceeded, job=put(connection, "quick"))


@rule("M81")
async def test_without_notifications_polling_alone_starts_a_job_within_a_second(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    assert WorkerConfig().poll_s < 1
    async with Hand(database, jobs, notify=False) as hand:
        for _ in range(3):
            # An idle worker's pauses have grown to the longest when its connection has been at rest
            # for half of that.
            await aeventually(
                lambda: rows(connection, AT_REST, connected(connection, "claim"), 0.4)
            )
            await hand.heard(JobSucceeded, job=put(connection, "quick"))
        assert connected(connection, "listen") == []
        assert (
            value(connection, "select count(*) from rota.queue where notify_until is not null") == 0
        )


@rule("M88")
def test_a_commit_carries_a_notify_only_while_a_worker_waits_for_its_queue(
    connection: Connection, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as listener:
        for worker in ("w1", "w2", "w3"):
            channel = Statements("rota").worker_channel(worker)
            listener.execute(f'listen "{channel}"'.encode())
        listener.execute("listen rota")

        def heard() -> list[str]:
            connection.execute("notify rota, 'end'")
            found: list[str] = []
            while "end" not in found:
                found += [notice.payload for notice in listener.notifies(timeout=60, stop_after=1)]
            return found[:-1]

        put(connection, "quick")
        assert heard() == [], "no worker has ever waited"
        connection.execute(
            "insert into rota.queue (name, notify_until, waiting) "
            "values ('default', now() + interval '1 hour', array['a w1', 'a w2', 'b w3']), "
            "('past', now(), array['a w1'])"
        )
        connection.execute(
            "insert into rota.job (job_type, queue) values ('quick', 'other'), ('quick', 'past')"
        )
        connection.execute(
            "insert into rota.job (job_type, run_at) values ('quick', now() + interval '1 minute')"
        )
        assert heard() == [], "no worker waits for these queues, or the job is not due"
        put(connection, "quick")
        assert heard() == ["default"] * 2, "for one job one worker of each kind"
        put_many(connection, "quick", 3)
        assert heard() == ["default"] * 3, "as many as there are, and each once"


@rule("M81")
async def test_a_job_that_is_due_soon_starts_in_time_just_after_another(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with Hand(database, jobs, **RARE) as hand:
        await wait_for_request(connection, hand)
        await hand.heard(JobSucceeded, job=put(connection, "quick"))
        hand.part(Claimer)._probe_at = monotonic() + 3600  # it has just asked what is due
        hand.part(Claimer).workers = MANY
        [(later,)] = rows(
            connection,
            "insert into rota.job (job_type, run_at) values ('quick', now() + interval '0.5 s') "
            "returning id",
        )
        await hand.heard(JobSucceeded, job=later)


@rule("M81")
@pytest.mark.parametrize("is_newest", [True, False])
async def test_a_job_of_a_long_transaction_starts_soon_after_its_commit(
    database: str, connection: Connection, jobs: rota.Jobs, *, is_newest: bool
) -> None:
    async with Hand(database, jobs, **RARE) as hand:
        await wait_for_request(connection, hand)
        with psycopg.connect(database) as late:
            job = put(late, "quick")
            if not is_newest:
                await hand.heard(JobSucceeded, job=put(connection, "quick"))
            await asyncio.to_thread(late.execute, "select pg_sleep(0.6)")
            before = hand.part(Claimer)._claimed_at
            hand.look()  # it sees the transaction, and the frontier passes the job
            await aeventually(lambda: hand.part(Claimer)._claimed_at != before)
            await aeventually(
                lambda: rows(connection, AT_REST, connected(connection, "claim"), 0.2)
            )
            # No look back is due, but one after a transaction that has ended.
            for frontier in hand.part(Claimer)._frontiers._by_queue["default"].values():
                frontier.due_at = [math.inf] * len(DEPTHS_S)
                frontier.ended_due_at = monotonic() + 0.3
            hand.part(Claimer)._probe_at = monotonic() + 3600  # it has just asked what is due
            late.commit()
        await hand.heard(JobSucceeded, job=job)


@rule("M81")
async def test_a_job_that_is_moved_to_soon_starts_in_time(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with Hand(database, jobs, **RARE) as hand:
        await wait_for_request(connection, hand)
        connection.execute(
            "insert into rota.job (job_type, run_at) values ('quick', now() + interval '1 h')"
        )
        connection.execute(
            "select rota.job_reschedule(array(select id from rota.job), p_delay => '0.5 s')"
        )
        await hand.heard(JobSucceeded)


@rule("M81")
async def test_while_the_slots_of_one_queue_are_full_a_worker_is_woken_for_another(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "PROBE_S", 0.2)
    end = asyncio.Event()

    @jobs.job("report", queue="reports")
    async def report() -> None:
        await end.wait()

    async with Hand(database, jobs, queues={"default": 1, "reports": 1}, **RARE) as hand:
        await wait_for_request(connection, hand)
        connection.execute("insert into rota.job (job_type, queue) values ('report', 'reports')")
        await hand.heard(JobClaimed)

        def list_awaited() -> list[str]:
            connection.execute("update rota.queue set waiting = '{}'")
            found = eventually(
                lambda: rows(connection, "select name from rota.queue where waiting <> '{}'")
            )
            return sorted(name for (name,) in found)

        await aeventually(lambda: list_awaited() == ["default"])
        await hand.heard(JobSucceeded, job=put(connection, "quick"))
        # Once it may take any job it asks for all wake-ups itself.
        monkeypatch.setattr(listen, "PROBE_S", 3600)
        await aeventually(lambda: rows(connection, AT_REST, connected(connection, "listen"), 0.5))
        connection.execute("update rota.queue set waiting = '{}'")
        end.set()
        await hand.heard(JobSucceeded, 2)
        await wait_for_request(connection, hand)


@rule("M81")
async def test_jobs_that_a_worker_has_put_off_start_in_time_after_claims_that_did_not_ask_for_them(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    @jobs.job("later", takes_context=True)
    async def put_off(ctx: rota.Context, after: str) -> None:
        if ctx.job.claims == 1:
            raise rota.Snooze(after)

    async with Hand(database, jobs, **RARE) as hand:
        await wait_for_request(connection, hand)
        later = [put(connection, "later", after=after) for after in ("1s", "1300ms")]
        await hand.heard(JobSnoozed, 2)
        hand.part(Claimer)._probe_at = monotonic() + 1.5
        hand.part(Claimer).workers = MANY
        for job in later:
            await hand.heard(JobSucceeded, job=job)


@rule("M83")
async def test_what_is_handed_back_behind_the_frontiers_is_found_through_the_request_to_look_back(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After its first claim the worker's own looks back reach 0.25 s.
    monkeypatch.setattr("rota.worker.frontier.PERIODS_S", (1e9,) * len(DEPTHS_S))
    connection.execute(
        "insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts) "
        "select 'quick', 'running', 'other',"
        " clock_timestamp() + interval '1 hour', 1, 1 from generate_series(1, 300)"
    )
    connection.execute("update rota.job set run_at = run_at - interval '1 minute'")
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, job=put(connection, "quick"))
        outcomes = (
            "jsonb_agg(jsonb_build_object('id', id, 'claims', claims, 'status', 'queued', "
            "'charged', false))"
        )
        connection.execute(
            f"select rota.job_leave((select {outcomes} from rota.job), 'r')".encode()
        )
        asked = (
            "select look_back_to = (select min(run_at) from rota.jobs) from rota.queue "
            "where name = 'default'"
        )
        assert value(connection, asked) is True
        await hand.heard(JobSucceeded, 301)
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]
