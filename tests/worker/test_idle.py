"""What idle workers ask the database, and that one of them looks for all."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any

import psycopg
import pytest

import rota
from rota.observe.events import JobClaimed, JobFailed, JobReaped, JobSucceeded
from rota.upkeep.reaper import Reaper
from rota.worker.claimer import Claimer
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, over, put, rows

RARE: dict[str, Any] = {"poll_least_s": 3600.0, "poll_s": 3600.0, "listening_poll_s": 3600.0}
"""No worker finds a job by looking for it again."""
SOON_S = 8.0
"""A second, and as much as a busy machine may need. What is not found as it should be is not found
at all, or much later."""


@pytest.fixture
def jobs() -> rota.Jobs:
    made = rota.Jobs()

    @made.job("quick")
    async def quick() -> None: ...

    @made.job("hold")
    async def hold() -> None:
        await asyncio.sleep(3600)

    @made.job("later", takes_context=True)
    async def snooze_once(ctx: rota.Context) -> None:
        if ctx.job.claims == 1:
            raise rota.Snooze("1s")

    @made.job("twice", retry=rota.Fixed("1s", jitter=0), takes_context=True)
    async def fail_once(ctx: rota.Context) -> None:
        if ctx.job.attempts == 1:
            raise OSError

    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """When the workers of this process have sent which statements."""
    sent: list[tuple[float, str]] = []
    execute = psycopg.AsyncCursor.execute

    async def note(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        sent.append((monotonic(), query.decode() if isinstance(query, bytes) else str(query)))
        return await execute(cursor, query, *arguments, **options)

    # Where they are asked: a connection that is idle tells the server's statistics of what its
    # start took ten seconds later or more.
    monkeypatch.setattr(psycopg.AsyncCursor, "execute", note)
    return sent


def count_claims(asked: list[tuple[float, str]]) -> int:
    return sum("job_claim(" in text for _, text in asked)


def until_over(connection: Connection, jobs: int) -> None:
    """Wait until so many jobs are over, a second at most."""
    eventually(lambda: over(connection) == jobs, 1 + SOON_S)


async def until_idle(connection: Connection, *hands: Hand) -> None:
    """Wait until producers know of these workers, and they are at rest."""
    names = {hand.part(Claimer)._peer for hand in hands}

    def are_awaited() -> bool:
        [(waiting,)] = rows(connection, "select waiting from rota.queue") or [([],)]
        return names <= set(waiting) and all(
            hand.part(Claimer)._is_idle and hand.part(Claimer)._is_awaited for hand in hands
        )

    await aeventually(are_awaited)


def hear_look(database: str) -> str:
    """The worker that looks next."""
    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("listen rota")
        [look] = listener.notifies(timeout=60, stop_after=1)
        return look.payload


async def who_looks(database: str, hands: list[Hand]) -> tuple[Hand, Hand]:
    """Of two workers the one that looks next for both, and the other."""
    looking = await asyncio.to_thread(hear_look, database)
    first, second = hands
    return (first, second) if first.part(Claimer)._peer == looking else (second, first)


async def start_fleet(
    stack: AsyncExitStack, database: str, jobs: rota.Jobs, count: int, **config: Any
) -> list[Hand]:
    """Start workers that know how many they are."""
    hands = [await stack.enter_async_context(Hand(database, jobs, **config)) for _ in range(count)]
    for hand in hands:
        hand.part(Claimer).workers = count
    return hands


@pytest.mark.nightly
@rule("M3")
@pytest.mark.parametrize(("notify", "most"), [(True, 0.6), (False, 1.5)])
async def test_an_idle_worker_sends_one_statement_in_two_seconds_or_three_without_notify(
    database: str, jobs: rota.Jobs, asked: list[tuple[float, str]], notify: bool, most: float
) -> None:
    async with Hand(database, jobs, notify=notify):
        await asyncio.sleep(3)
        asked.clear()
        await asyncio.sleep(20)
        sent = Counter(text[:60] for _, text in asked)
    # Once a minute come some four more (alerts, statistics, the copy guard).
    assert 6 <= sent.total() <= 20 * most - 4 / 3, sent


@pytest.mark.nightly
@rule("M81")
async def test_a_job_costs_about_one_claim_however_many_workers_wait_for_it(
    database: str, connection: Connection, jobs: rota.Jobs, asked: list[tuple[float, str]]
) -> None:
    async with AsyncExitStack() as stack:
        hands = await start_fleet(stack, database, jobs, 8, **RARE)
        await until_idle(connection, *hands)
        asked.clear()
        for n in range(1, 101):
            put(connection, "quick")
            await asyncio.to_thread(until_over, connection, n)
        claims = count_claims(asked)
    assert 100 <= claims <= 110
    assert len(rows(connection, "select distinct locked_by from rota.job_history")) > 1


@pytest.mark.nightly
@rule("M81")
async def test_a_look_after_which_others_rest_asks_when_the_next_job_is_due(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with AsyncExitStack() as stack:
        hands = await start_fleet(stack, database, jobs, 2, **RARE)
        await until_idle(connection, *hands)
        put(connection, "later")
        await aeventually(
            lambda: rows(connection, "select from rota.job where status = 'queued' and claims > 0")
        )
        [holder] = [hand for hand in hands if hand.part(Claimer).claimed]
        [other] = [hand for hand in hands if hand is not holder]
        other.part(Claimer)._probe_at = monotonic() + 3600
        other.look()
        await asyncio.to_thread(until_over, connection, 1)


@rule("M3")
@pytest.mark.parametrize("job_type", ["quick", "unknown"])
async def test_jobs_that_nobody_may_run_are_not_claimed_for_one_by_one_as_they_become_due(
    database: str,
    connection: Connection,
    jobs: rota.Jobs,
    asked: list[tuple[float, str]],
    job_type: str,
) -> None:
    if job_type == "quick":
        connection.execute("select rota.queue_pause('default')")
    connection.execute(
        "insert into rota.job (job_type, run_at) "
        "select %s, now() + n * interval '2 ms' from generate_series(1, 1000) n",
        [job_type],
    )
    async with Hand(database, jobs):
        await aeventually(
            lambda: rows(
                connection,
                "select max(run_at) from rota.job having max(run_at) < clock_timestamp()",
            )
        )
        claims = count_claims(asked)
    assert 1 <= claims <= 50


@rule("M3")
async def test_while_all_is_paused_an_insert_wakes_nobody(
    database: str, connection: Connection, jobs: rota.Jobs, asked: list[tuple[float, str]]
) -> None:
    async with Hand(database, jobs, **RARE) as hand:
        await until_idle(connection, hand)
        connection.execute("select rota.pause_all()")
        asked.clear()
        for _ in range(50):
            put(connection, "quick")
            await asyncio.sleep(0.005)
        claims = count_claims(asked)
        connection.execute("select rota.resume_all()")
        await hand.heard(JobSucceeded, 50)
    assert claims <= 5


@pytest.mark.nightly
@rule("M81")
async def test_a_worker_without_room_passes_a_wake_up_on(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with AsyncExitStack() as stack:
        hands = await start_fleet(stack, database, jobs, 2, slots=1, **RARE)
        await until_idle(connection, *hands)
        put(connection, "hold")
        await aeventually(lambda: any(hand.worker.attempts for hand in hands))
        [busy] = [hand for hand in hands if hand.worker.attempts]
        [free] = [hand for hand in hands if hand is not busy]
        for _ in range(10):  # each time either may be the one that is told
            await free.heard(JobSucceeded, job=put(connection, "quick"), timeout_s=SOON_S)
        assert rows(connection, "select waiting from rota.queue") == [([free.part(Claimer)._peer],)]
        busy.worker.stop_now()


@pytest.mark.nightly
@rule("M81")
@pytest.mark.parametrize("told", [2, 4])
async def test_who_is_told_of_more_than_it_can_take_wakes_as_many_others(
    database: str, connection: Connection, jobs: rota.Jobs, told: int
) -> None:
    async with AsyncExitStack() as stack:
        hands = await start_fleet(stack, database, jobs, 4, slots=1, **RARE)
        await until_idle(connection, *hands)
        with connection.transaction():  # nobody is told
            connection.execute("set local session_replication_role = replica")
            connection.execute(
                "insert into rota.job (job_type, queue, priority) "
                "select 'hold', 'default', 0 from generate_series(1, 4)"
            )
        for _ in range(told):
            hands[0].part(Claimer).take_wake_up("default")
        await aeventually(
            lambda: rows(
                connection,
                "select from rota.job having count(*) filter (where status = 'running') >= %s",
                told,
            )
        )
        for hand in hands:
            hand.worker.stop_now()


@pytest.mark.nightly
@rule("M81")
async def test_who_has_no_room_when_its_retry_is_due_wakes_another(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with AsyncExitStack() as stack:
        hands = await start_fleet(stack, database, jobs, 2, slots=1, **RARE)
        await until_idle(connection, *hands)
        retried = put(connection, "twice")
        await aeventually(lambda: any(hand.part(Claimer).claimed for hand in hands))
        [first] = [hand for hand in hands if hand.part(Claimer).claimed]
        await first.heard(JobFailed)
        with connection.transaction():  # the other is not told
            connection.execute("set local session_replication_role = replica")
            connection.execute(
                "insert into rota.job (job_type, queue, priority) values ('hold', 'default', 0)"
            )
        first.part(Claimer)._probe_at = 0.0  # its claim asks what is due
        first.part(Claimer).take_wake_up("default")
        await first.heard(JobClaimed, 2)
        [other] = [hand for hand in hands if hand is not first]
        await other.heard(JobSucceeded, job=retried, timeout_s=SOON_S)
        first.worker.stop_now()


@pytest.mark.nightly
@rule("M21", "M81")
async def test_a_job_that_is_due_soon_and_a_retry_start_in_time(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with Hand(database, jobs, **RARE) as hand:
        await until_idle(connection, hand)
        connection.execute(
            "insert into rota.job (job_type, run_at) "
            "values ('quick', clock_timestamp() + interval '1.5 s')"
        )
        await hand.heard(JobSucceeded, timeout_s=SOON_S)
        put(connection, "twice")
        await hand.heard(JobFailed, timeout_s=SOON_S)
        await hand.heard(JobSucceeded, 2, timeout_s=SOON_S)


@rule("M81")
@pytest.mark.parametrize("pause", ["queue_pause('default', ", "pause_all("])
async def test_a_job_starts_when_the_pause_ends(
    database: str, connection: Connection, jobs: rota.Jobs, pause: str
) -> None:
    connection.execute(f"select rota.{pause}clock_timestamp() + interval '1.5 s')".encode())
    put(connection, "quick")
    async with Hand(database, jobs, **RARE) as hand:
        await hand.heard(JobSucceeded, timeout_s=SOON_S)


@rule("M81")
async def test_a_worker_rests_for_the_looks_of_its_kind_only(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    others = rota.Jobs()
    others.job("other")(_nothing)
    async with Hand(database, jobs) as hand, Hand(database, others) as other:
        await until_idle(connection, hand, other)
        claimer = hand.part(Claimer)
        claimer._turn_at = before = monotonic()
        claimer.note_poll(other.part(Claimer)._peer)
        claimer.note_poll(claimer._peer)
        assert claimer._turn_at == before
        claimer.note_poll(claimer._peer.partition(" ")[0] + " another")
        assert claimer._turn_at > before


@rule("M33")
async def test_while_the_reaper_of_the_worker_that_looks_for_all_hangs_another_reaps(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        hands = await start_fleet(stack, database, jobs, 2)
        await until_idle(connection, *hands)
        ill, well = await who_looks(database, hands)
        monkeypatch.setattr(ill.part(Reaper), "tick", asyncio.Event().wait)
        connection.execute(
            "insert into rota.job (job_type, status, locked_by, locked_until, claims) "
            "values ('quick', 'running', 'gone', now() - interval '1 s', 1)"
        )
        await well.heard(JobReaped)


@pytest.mark.nightly
@rule("M81")
async def test_a_worker_that_was_busy_when_it_was_to_ask_again_asks_when_it_is_idle(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with Hand(database, jobs, **RARE) as hand:
        await until_idle(connection, hand)
        connection.execute("update rota.queue set notify_until = now(), waiting = '{}'")
        hand.part(Claimer).note_listening(is_listening=True, is_awaited=False)

        def is_awaited() -> bool:
            return bool(rows(connection, "select from rota.queue where notify_until > now()"))

        hand.look()
        await aeventually(is_awaited, SOON_S)  # the listener asks every 20 s


@rule("M33", "M81")
async def test_when_the_worker_that_looks_for_all_hangs_another_looks(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        hands = await start_fleet(stack, database, jobs, 2)
        await until_idle(connection, *hands)
        ill, well = await who_looks(database, hands)
        hangs = asyncio.Event()
        monkeypatch.setattr(ill.part(Claimer), "tick", hangs.wait)
        while await asyncio.to_thread(hear_look, database) != well.part(Claimer)._peer:
            pass  # what the other has sent before
        for n in range(1, 11):  # half of these are told to the one that hangs
            put(connection, "quick")
            await well.heard(JobSucceeded, n)
        hangs.set()


async def _nothing() -> None: ...


@rule("M81", "M83")
async def test_a_worker_that_goes_down_is_woken_no_more_while_its_handlers_have_their_grace(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    async with Hand(database, jobs, slots=5) as hand:
        job = put(connection, "hold")
        await hand.heard(JobClaimed, job=job)
        await until_idle(connection, hand)
        hand.worker.stop()

        def waits_no_more() -> bool:
            return rows(connection, "select waiting from rota.queue") == [([],)]

        await aeventually(waits_no_more)
        assert rows(connection, "select status from rota.job") == [("running",)]
        hand.worker.stop_now()
