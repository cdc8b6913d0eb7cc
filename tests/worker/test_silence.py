"""Connections that die without a word: nothing arrives any more, nothing is closed, and every kernel on the way believes in them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

import rota
from rota.errors import DatabaseUnavailable
from rota.events import DatabaseLost, JobSucceeded
from tests.support.proxy import Proxy
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
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


jobs = rota.Jobs()


@jobs.job("quick")
async def quick() -> None: ...


@jobs.job("three leases", lease="3s")
async def three_leases() -> None:
    await asyncio.sleep(9)


@rule("M81")
async def test_a_bell_that_died_silently_is_replaced(connection: Connection, proxy: Proxy, through: str, impatient: None) -> None:
    async with Hand(through, jobs, poll_s=30.0) as hand:
        listens = "select true from pg_stat_activity where datname = current_database() and state = 'idle' and query like 'listen %'"
        await asyncio.to_thread(eventually, lambda: rows(connection, listens))
        proxy.silence("listen")
        lost = await hand.heard(DatabaseLost)
        assert lost.service == "listener" and "nothing within" in lost.reason
        await asyncio.to_thread(_seen, proxy, "listen", 2)
        for _ in range(2):  # the first may still be found by a poll
            await hand.heard(JobSucceeded, job=put(connection, "quick"))


@rule("M2", "M31")
@pytest.mark.parametrize("role", ["claim", "finish", "reap"])
async def test_a_connection_of_the_worker_that_died_silently_is_replaced(
    connection: Connection, proxy: Proxy, through: str, impatient: None, role: str
) -> None:
    async with Hand(through, jobs) as hand:
        await hand.heard(JobSucceeded, job=put(connection, "quick"))
        opened = proxy.seen.count(role)
        proxy.silence(role)
        job = put(connection, "quick")
        lost = await hand.heard(DatabaseLost)
        assert "the database does not answer: nothing within 1.5 s" in lost.reason
        await asyncio.to_thread(_seen, proxy, role, opened + 1)
        await hand.heard(JobSucceeded, job=job)
    assert rows(connection, "select distinct status, attempts from rota.job_history") == [("succeeded", 1)]


@pytest.mark.slow
@rule("M31")
async def test_a_lease_outlives_the_silent_death_of_the_connection_that_renews_it(
    connection: Connection, proxy: Proxy, through: str
) -> None:
    job = put(connection, "three leases")
    async with Hand(through, jobs) as hand:
        await asyncio.to_thread(_seen, proxy, "lease", 1)
        proxy.silence("lease")  # the server would wait for ever, and so would the kernel
        await hand.heard(JobSucceeded, job=job, timeout_s=30)
    assert proxy.seen.count("lease") >= 2
    assert rows(connection, "select status, attempts from rota.job_history") == [("succeeded", 1)]
    assert value(connection, "select count(*) from rota.attempt") == 0


@rule("M2")
async def test_a_new_connection_that_finds_nobody_is_not_waited_for_either(
    connection: Connection, proxy: Proxy, through: str, impatient: None
) -> None:
    async with Hand(through, jobs) as hand:
        proxy.silence(new_ones_too=True)
        job = put(connection, "quick")
        await hand.until(lambda: any(isinstance(event, DatabaseLost) and "no connection" in event.reason for event in hand.events), 20)
        proxy.heal()
        await hand.heard(JobSucceeded, job=job, timeout_s=20)


@rule("M83")
async def test_a_worker_that_is_cut_off_ends_when_it_is_told_to(
    connection: Connection, proxy: Proxy, through: str, impatient: None
) -> None:
    hand = Hand(through, jobs)
    await hand.__aenter__()
    await hand.heard(JobSucceeded, job=put(connection, "quick"))
    proxy.silence(new_ones_too=True)
    await hand.__aexit__()  # waits 30 s at most


@rule("M83")
@pytest.mark.slow
@pytest.mark.parametrize("hurried", [False, True])
async def test_the_way_out_is_short_however_silent_the_database_is(
    connection: Connection, proxy: Proxy, through: str, hurried: bool
) -> None:
    hand = Hand(through, jobs, grace_s=600.0 if hurried else 1.0, slots=2)
    await hand.__aenter__()
    running = put(connection, "three leases")
    await asyncio.to_thread(eventually, lambda: rows(connection, "select true from rota.job where status = 'running'"))
    connection.execute("begin")
    connection.execute("lock table rota.job")
    asked = "select true from pg_locks where not granted having count(distinct pid) >= 2"  # the claim and the renewal are under way
    await asyncio.to_thread(eventually, lambda: rows(connection, asked))
    proxy.silence(new_ones_too=True)
    connection.execute("rollback")
    loop = asyncio.get_running_loop()
    told_at = loop.time()
    if hurried:
        hand.worker.hurry()
    else:
        hand.worker.stop()
    assert hand._task is not None
    with pytest.raises(DatabaseUnavailable):
        await asyncio.wait_for(hand._task, 60)
    assert loop.time() - told_at < (0 if hurried else 1) + 20
    assert rows(connection, "select id, status from rota.job") == [(running, "running")]


@rule("M2")
async def test_a_call_of_the_application_does_not_wait_for_ever(proxy: Proxy, through: str, impatient: None) -> None:
    app = rota.App(through)

    @app.job("charge")
    async def charge() -> None: ...

    async with aclosing(app):
        await charge.aenqueue()
        proxy.silence("client")
        with pytest.raises(DatabaseUnavailable, match=r"nothing within 1\.5 s"):
            await asyncio.wait_for(charge.aenqueue(), 10)
        await charge.aenqueue()


def _seen(proxy: Proxy, role: str, times: int) -> None:
    eventually(lambda: proxy.seen.count(role) >= times, 20, what=f"{times} connections of {role}")
