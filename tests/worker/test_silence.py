"""Connections that die without a word: nothing arrives any more, nothing is closed, and every
kernel on the way believes in them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import psycopg
import pytest

import rota
from rota.errors import DatabaseUnavailable
from rota.observe.events import DatabaseLost, JobClaimed, JobSucceeded
from rota.store.pools import POOL_MAX
from rota.store.statements import Statements
from rota.worker.claimer import Claimer
from tests.support.proxy import Proxy
from tests.support.rules import rule
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, value


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy, database: str) -> str:
    """The URL of the test's database, by way of the proxy."""
    return proxy.url(database.rpartition("/")[2])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in production, in a twentieth of the time."""
    monkeypatch.setattr("rota.store.link.ANSWER_S", 1.5)
    monkeypatch.setattr("rota.store.db.ANSWER_S", 1.5)
    monkeypatch.setattr("rota.store.listen.PROBE_S", 0.5)
    monkeypatch.setattr("rota.store.listen.PROBE_ANSWER_S", 0.5)
    monkeypatch.setattr("rota.worker.copy_guard.CHECK_S", 0.2)


jobs = rota.Jobs()


# If a claim reaches the server before a silence and its answer does not come back, no worker runs
# the job for this long.
@jobs.job("quick", lease="3s")
async def quick() -> None: ...


@jobs.job("for ever", lease="3s")
async def for_ever() -> None:
    await asyncio.Event().wait()


@rule("M81")
async def test_a_listening_connection_that_died_silently_is_replaced(
    connection: Connection,
    proxy: Proxy,
    through: str,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    was_woken = asyncio.Event()
    monkeypatch.setattr(Claimer, "wake_for", lambda claimer, queue: was_woken.set())
    async with Hand(through, jobs) as hand:
        await asyncio.to_thread(_in_use, connection, "listen")
        opened = proxy.seen.count("listen")
        proxy.silence("listen")
        lost = await hand.lost("listener")
        assert "no answer within" in lost.reason
        await asyncio.to_thread(_seen, proxy, "listen", opened + 1)

        def is_notified() -> bool:
            channel = Statements("rota").worker_channel(hand.name)
            connection.execute("select pg_notify(%s, 'default')", [channel])
            return was_woken.is_set()

        await aeventually(is_notified)


@rule("M2", "M31")
@pytest.mark.parametrize("role", ["claim", "finish"])
async def test_a_connection_of_the_worker_that_died_silently_is_replaced(
    connection: Connection, proxy: Proxy, through: str, impatient: None, role: str
) -> None:
    async with Hand(through, jobs) as hand:
        await hand.heard(JobSucceeded, job=put(connection, "quick"))
        await asyncio.to_thread(_in_use, connection, role)
        opened = proxy.seen.count(role)
        proxy.silence(role)
        job = put(connection, "quick")
        lost = await hand.heard(DatabaseLost)
        assert "the database does not answer: no answer within 1.5 s" in lost.reason
        await asyncio.to_thread(_seen, proxy, role, opened + 1)
        await hand.heard(JobSucceeded, job=job)
    assert rows(connection, "select distinct status, attempts from rota.job_history") == [
        ("succeeded", 1)
    ]


@rule("M31")
async def test_a_lease_outlives_the_silent_death_of_the_connection_that_renews_it(
    connection: Connection, proxy: Proxy, through: str
) -> None:
    # A third of it goes by until it is renewed, a quarter until the silence is noticed, and half of
    # that until the connection is cut: that leaves more than two seconds for a machine that stands
    # still.
    one_lease = rota.Jobs()
    renewed = asyncio.Event()

    @one_lease.job("renewed", lease="12s")
    async def until_renewed() -> None:
        await renewed.wait()

    job = put(connection, "renewed")
    async with Hand(through, one_lease) as hand:
        await hand.heard(JobClaimed, job=job)
        await asyncio.to_thread(_in_use, connection, "lease")
        opened = proxy.seen.count("lease")
        proxy.silence("lease")  # the server would wait for ever, and so would the kernel
        await asyncio.to_thread(_seen, proxy, "lease", opened + 1)
        lease = value(connection, "select locked_until from rota.job")
        is_renewed = "select claims from rota.job where locked_until > %s"
        assert await aeventually(lambda: rows(connection, is_renewed, lease)) == [(1,)]
        renewed.set()
        await hand.heard(JobSucceeded, job=job)
    assert rows(connection, "select status, attempts from rota.job_history") == [("succeeded", 1)]
    assert value(connection, "select count(*) from rota.attempt") == 0


@rule("M2")
async def test_a_new_connection_without_an_answer_is_not_waited_for_either(
    connection: Connection, proxy: Proxy, through: str, impatient: None
) -> None:
    async with Hand(through, jobs) as hand:
        proxy.silence(new_ones_too=True)
        job = put(connection, "quick")
        await hand.until(
            lambda: any(
                isinstance(event, DatabaseLost) and "no connection" in event.reason
                for event in hand.events
            )
        )
        proxy.heal()
        await hand.heard(JobSucceeded, job=job)


@rule("M83")
async def test_the_way_out_ends_however_silent_the_database_is(
    database: str,
    connection: Connection,
    proxy: Proxy,
    through: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a claim and a renewal wait for their answers, of which each may take half a minute."""
    monkeypatch.setattr("rota.worker.shutdown.RECORD_S", 1.0)
    monkeypatch.setattr("rota.worker.shutdown.LEAVE_S", 0.2)
    monkeypatch.setattr("rota.store.link.ANSWER_S", 3600.0)
    # The lease may run out while a busy machine stands still: no other worker may take the job
    # then.
    connection.execute(
        "create or replace function rota.uptime() returns interval language sql stable parallel "
        "safe as $$select interval '0'$$"
    )
    hand = Hand(through, jobs, grace_s=0.0, slots=2)
    await hand.__aenter__()
    running = put(connection, "for ever")
    await aeventually(
        lambda: rows(connection, "select true from rota.job where status = 'running'")
    )
    waiting = """
    select application_name from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'
      and application_name in ('rota claim', 'rota lease')"""
    with psycopg.connect(database) as holder:
        await asyncio.to_thread(holder.execute, "lock table rota.job")
        await aeventually(
            lambda: len(rows(connection, waiting)) == 2,
            what="the claim and the renewal are under way",
        )
        proxy.silence(new_ones_too=True)
    hand.worker.stop()
    assert hand._task is not None
    with pytest.raises(DatabaseUnavailable):
        await asyncio.wait_for(hand._task, 60)
    assert rows(connection, "select id, status from rota.job") == [(running, "running")]


@rule("M2", "M20")
async def test_however_many_calls_are_the_first_an_application_opens_a_few_connections(
    proxy: Proxy, through: str
) -> None:
    app = rota.App(through)

    @app.job("charge")
    async def charge() -> None: ...

    async with aclosing(app):
        server, proxy.target = proxy.target, unused_port()
        refused = await asyncio.gather(
            *(charge.aenqueue() for _ in range(200)), return_exceptions=True
        )
        assert {type(error) for error in refused} == {DatabaseUnavailable}
        assert proxy.seen.count("client") == 1, "one tries, and all hear what came of it"
        proxy.target = server
        made = await asyncio.gather(*(charge.aenqueue() for _ in range(200)))
    assert len({job.id for job in made}) == 200
    assert proxy.seen.count("client") <= 2 + POOL_MAX


@rule("M2")
async def test_a_call_of_the_application_does_not_wait_for_ever(
    proxy: Proxy, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = rota.App(through)

    @app.job("charge")
    async def charge() -> None: ...

    async with aclosing(app):
        await charge.aenqueue()
        proxy.silence("client")
        with monkeypatch.context() as impatient:
            impatient.setattr("rota.store.db.ANSWER_S", 1.5)
            with pytest.raises(DatabaseUnavailable, match=r"no answer within 1\.5 s"):
                await asyncio.wait_for(app.afind(), 30)
        await charge.aenqueue()


def _in_use(connection: Connection, role: str) -> None:
    """Wait until a connection of that role has brought its first answer."""
    answered = (
        "select true from pg_stat_activity where datname = current_database() "
        "and application_name = %s and state = 'idle' and query <> ''"
    )
    eventually(
        lambda: rows(connection, answered, f"rota {role}"),
        what=f"the connection to {role} is in use",
    )


def _seen(proxy: Proxy, role: str, times: int) -> None:
    eventually(lambda: proxy.seen.count(role) >= times, what=f"{times} connections of {role}")
