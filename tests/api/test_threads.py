"""One App in many hands: threads that enqueue while others drain, threads that are the first at
once, forks, and a loop in each thread.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import cast

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.errors import DatabaseUnavailable
from rota.store.db import Database
from rota.store.pools import POOL_MAX, close_all
from tests.support.proxy import Proxy
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import count_lock_waits, eventually

Connection = psycopg.Connection[TupleRow]
CHILD_S = 60


def charging_app(url: str) -> tuple[rota.App, rota.JobType[[], [], None]]:
    """An App with a type that does nothing."""
    app = rota.App(url)

    @app.job("charge")
    def charge() -> None: ...

    return app, charge


def _mute_url(listening: socket.socket) -> str:
    where = f"127.0.0.1:{listening.getsockname()[1]}"
    return f"postgresql://postgres@{where}/x?sslmode=disable&gssencmode=disable"


def _threads_in(function: str, threads: ThreadPoolExecutor) -> int:
    """How many of these threads are in a function of that name, or below it."""
    frames = sys._current_frames()
    return sum(
        any(at.f_code.co_name == function for at, _ in traceback.walk_stack(frames[ident]))
        for ident in [thread.ident for thread in threads._threads]
        if ident in frames
    )


@rule("M1", "M20")
def test_a_thread_that_waits_for_a_connection_gets_one_though_another_thread_ends_the_pool(
    database: str, connection: Connection
) -> None:
    # As a drain in a thread does when it is done, while the requests of the same process enqueue.
    app, charge = charging_app(database)
    with ThreadPoolExecutor(POOL_MAX + 1) as threads:
        with connection.transaction():
            connection.execute("lock table rota.job")
            calls = [threads.submit(charge.enqueue) for _ in range(POOL_MAX)]
            eventually(lambda: count_lock_waits(connection) == POOL_MAX, what="all are in use")
            pools = app._database._pools
            wait_s, pools._wait_s = pools._wait_s, 0.1  # the others have their connections
            with pytest.raises(DatabaseUnavailable, match="all 4 that the App may have are in use"):
                charge.enqueue()
            pools._wait_s = wait_s
            calls.append(threads.submit(charge.enqueue))
            eventually(
                lambda: _threads_in("getconn", threads) == 1,
                what="one more thread waits for a connection",
            )
            app.close()
        made = {call.result(CHILD_S).id for call in calls}
    app.close()
    assert len(made) == POOL_MAX + 1


@rule("M1")
def test_of_threads_that_are_the_first_at_once_one_connects_and_all_get_its_result() -> None:
    # Else each would try in its turn, and of twenty requests the last would wait twenty times as
    # long for a server that does not answer.
    with (
        ThreadPoolExecutor(5) as threads,
        socket.create_server(("127.0.0.1", 0)) as mute,  # it takes connections and says nothing
    ):
        mute.settimeout(CHILD_S)
        _, charge = charging_app(_mute_url(mute))
        calls = [threads.submit(charge.enqueue) for _ in range(5)]
        taken, _ = mute.accept()
        try:
            eventually(lambda: _threads_in("_sync_pool", threads) == 5, what="all wait for it")
        finally:
            taken.close()
            left = wait(calls, CHILD_S).not_done
            mute.close()  # else the threads of what is left never end
        assert left == set(), "they connect for themselves"
        for call in calls:
            with pytest.raises(DatabaseUnavailable):
                call.result(CHILD_S)


@rule("M1")
def test_a_fork_does_not_wait_for_what_a_thread_of_its_parent_was_doing(database: str) -> None:
    # A server that forks its workers (gunicorn, uWSGI, multiprocessing) may have threads that are
    # just enqueueing.
    with (
        ThreadPoolExecutor(1) as threads,
        socket.create_server(("127.0.0.1", 0)) as mute,  # it takes connections and says nothing
    ):
        mute.settimeout(CHILD_S)
        app, charge = charging_app(_mute_url(mute))
        call = threads.submit(charge.enqueue)
        taken, _ = mute.accept()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                app._database._pools._conninfo = lambda: database
                charge.enqueue()
                status = 0
            finally:
                os._exit(status)
        try:
            eventually(
                lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT),
                CHILD_S,
                what="the child is done",
            )
        finally:
            os.kill(child, 9)
            _, status = os.waitpid(child, 0)
            mute.close()
            taken.close()
        with pytest.raises(DatabaseUnavailable):
            call.result(CHILD_S)
    assert status == 0


@rule("M1")
def test_threads_that_make_the_first_use_at_once_share_one_pool(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = charging_app(database)
    is_first_back, both_make = threading.Event(), threading.Barrier(2, timeout=CHILD_S)

    def make(url: str, schema: str, *, notify: bool) -> Database:
        if both_make.wait() == 0:
            is_first_back.wait(CHILD_S)
        return Database(url, schema, notify=notify)

    def use() -> Database:
        try:
            return app._database
        finally:
            is_first_back.set()

    monkeypatch.setattr("rota.app.Database", make)
    with ThreadPoolExecutor(2) as threads:
        first, second = (
            call.result(CHILD_S) for call in [threads.submit(use), threads.submit(use)]
        )
    assert first is second


class Watched(asyncio.SelectorEventLoop):
    """Holds up the first other thread that asks whether it is closed, for two seconds at most."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = threading.get_ident()
        self.was_asked, self.go_on = threading.Event(), threading.Event()

    def is_closed(self) -> bool:
        if threading.get_ident() != self.owner and not self.was_asked.is_set():
            self.was_asked.set()
            self.go_on.wait(2)
        return super().is_closed()


@pytest.mark.nightly
@rule("M1")
def test_loops_of_several_threads_do_not_forget_each_others_pools(database: str) -> None:
    # As where a plain web server runs async views, each in a loop of its own. A pool that is
    # forgotten is never closed.
    app, charge = charging_app(database)
    watched, are_done = Future[Watched](), threading.Event()

    async def enqueue(then: Callable[[], object]) -> set[str]:
        await charge.aenqueue()
        then()
        await asyncio.to_thread(are_done.wait, CHILD_S)
        await app.aclose()
        return {
            task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()
        }

    def view(
        then: Callable[[], object] = lambda: None,
        loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> set[str]:
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(enqueue(then))

    with ThreadPoolExecutor(3) as threads:
        calls = [
            threads.submit(
                view, lambda: watched.set_result(cast(Watched, asyncio.get_running_loop())), Watched
            )
        ]
        first = watched.result(CHILD_S)
        calls.append(threads.submit(view))
        assert first.was_asked.wait(CHILD_S), "the second looks at the loops that there are"
        calls.append(threads.submit(view, first.go_on.set))
        first.go_on.wait(CHILD_S)
        are_done.set()
        left = [call.result(CHILD_S) for call in calls]
    assert left == [set()] * 3


@rule("M1")
@pytest.mark.parametrize("uses_another", [False, True])
def test_what_a_closed_loop_has_left_is_closed(
    database: str, connection: Connection, uses_another: bool
) -> None:
    app = rota.App(database)
    gc.disable()  # it would close them some time later
    try:
        asyncio.run(_read(app))
        if uses_another:
            asyncio.run(_read(app))
        close_all()
        eventually(
            lambda: (
                connection.execute(
                    "select from pg_stat_activity where datname = current_database() "
                    "and application_name = 'rota client'"
                ).fetchall()
                == []
            )
        )
    finally:
        gc.enable()


async def _read(app: rota.App) -> None:
    assert await app.afind() == []


def test_a_program_that_ends_while_the_pool_connects_does_end(
    database: str, server: PostgresServer
) -> None:
    with Proxy(server.port) as proxy:
        _, charge = charging_app(proxy.url(database.rpartition("/")[2]))

        async def main() -> None:
            await charge.aenqueue()
            proxy.silence("client", new_ones_too=True)
            calls = [asyncio.create_task(charge.aenqueue()) for _ in range(2)]
            await asyncio.to_thread(
                eventually,
                lambda: len(proxy.seen) == 3,
                what="the second of them has the pool open another connection",
            )
            for call in calls:
                call.cancel()

        program = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
        program.start()
        program.join(CHILD_S)
        assert not program.is_alive(), (
            "it waits for ever for a task of the pool that has been cancelled"
        )
