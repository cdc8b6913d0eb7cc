"""A worker's name belongs to one start of it, and nothing depends on that."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid

import pytest

import rota
from rota.observe.events import JobSucceeded, LeaseLost
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, expire_leases, put, rows

TAKE_AWAY = "select id from rota.job_reap('-infinity', 100)"


@rule("M32")
async def test_two_starts_with_the_same_pid_on_the_same_host_have_different_names(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a container
    monkeypatch.setattr(socket, "gethostname", lambda: "shop-0")
    jobs = rota.Jobs()
    jobs.job("quick")(lambda: None)
    for _ in range(2):
        async with Hand(database, jobs):
            pass
    names = [name for (name,) in rows(connection, "select name from rota.worker")]
    assert len(set(names)) == 2 and all(name.startswith("shop-0:1:") for name in names)


@rule("M32")
async def test_even_under_the_same_name_a_late_worker_writes_nothing_over_its_successor(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = rota.Jobs()
    go = [asyncio.Event(), asyncio.Event()]
    started: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]

    @jobs.job("slow", lease="30s", retry=rota.Fixed("1s", jitter=0))
    async def slow() -> int:
        which = int(started[0].is_set())
        started[which].set()
        await go[which].wait()
        return which

    with monkeypatch.context() as patched:
        patched.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
        first, second = (
            Hand(database, jobs, queues={"default": 1}),
            Hand(database, jobs, queues={"second": 1}),
        )
    assert first.worker.name == second.worker.name
    put(connection, "slow")
    async with first:
        await asyncio.wait_for(started[0].wait(), 30)
        with connection.transaction():  # else the first might renew its lease in between
            # Otherwise the first worker might claim the job again.
            connection.execute("update rota.job set queue = 'second'")
            expire_leases(connection)
            assert len(rows(connection, TAKE_AWAY)) == 1
        async with second:
            await asyncio.wait_for(started[1].wait(), 30)
            go[0].set()
            await first.heard(LeaseLost)
            assert rows(connection, "select status, locked_by from rota.job") == [
                ("running", first.worker.name)
            ]
            go[1].set()
            await second.heard(JobSucceeded)
    assert rows(connection, "select result from rota.job_history") == [(1,)]
