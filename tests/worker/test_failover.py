"""A failover: new connections lead to the new server, while those that are open still lead to the
old one, which has become read-only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

import rota
from rota.errors import DatabaseUnavailable
from rota.observe.events import JobSucceeded
from rota.store.migrate import migrate
from rota.store.pools import POOL_MAX
from tests.api.test_threads import charging_app
from tests.support.proxy import Proxy
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, value

pytestmark = pytest.mark.system

ROLES = ["claim", "finish", "lease", "listen", "upkeep"]


class Failover:
    """Two servers with a database of the same name; the proxy leads to the first until `happen`."""

    def __init__(self, proxy: Proxy, old: Connection, new: Connection, new_port: int) -> None:
        self.proxy = proxy
        self.url = proxy.url(new.info.dbname)
        self.old = old
        self.new = new
        self._new_port = new_port

    def happen(self) -> None:
        """Make the old server read-only, also for the connections that it has, and lead new ones to
        the other."""
        self.old.execute("alter system set default_transaction_read_only = on")
        self.old.execute("select pg_reload_conf()")
        # Its connection is older than those of the test, and the server tells the newest first.
        eventually(lambda: value(self.old, "show default_transaction_read_only") == "on")
        self.proxy.target = self._new_port


@pytest.fixture
def failover(
    own_server: PostgresServer, server: PostgresServer, database: str, connection: Connection
) -> Iterator[Failover]:
    name = database.rpartition("/")[2]
    with psycopg.connect(own_server.url(), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    migrate(own_server.url(name))
    with (
        Proxy(own_server.port) as proxy,
        psycopg.connect(own_server.url(name), autocommit=True) as old,
    ):
        yield Failover(proxy, old, connection, server.port)


@pytest.mark.nightly
@rule("M2", "M20")
async def test_after_a_failover_one_call_fails_and_the_next_ones_find_the_new_server(
    failover: Failover,
) -> None:
    """Of plain code and on a loop."""
    (app, charge), (aapp, acharge) = charging_app(failover.url), charging_app(failover.url)
    enqueue = charge.enqueue
    with ThreadPoolExecutor(POOL_MAX) as pool:
        await acharge.aenqueue()
        with failover.old.transaction():
            # So no call returns: each pooled connection is in use.
            failover.old.execute("lock table rota.job")
            calls = [pool.submit(enqueue) for _ in range(50)]
            acalls = [asyncio.create_task(acharge.aenqueue()) for _ in range(49)]
            await aeventually(  # Of each App the first was to see whether it can.
                lambda: failover.proxy.seen.count("client") >= 2 * (1 + POOL_MAX),
                what="the pools are full",
            )
        await asyncio.gather(*acalls, *map(asyncio.wrap_future, calls))
    await asyncio.to_thread(failover.happen)
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        await asyncio.to_thread(enqueue)
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        await acharge.aenqueue()
    # No more failures: all pooled connections are gone, not only the one that failed.
    for _ in range(5):
        await asyncio.to_thread(enqueue)
        await acharge.aenqueue()
    app.close()
    await aapp.aclose()
    assert (
        value(failover.old, "select count(*) from rota.job"),
        value(failover.new, "select count(*) from rota.job"),
    ) == (100, 10)


@rule("M2")
async def test_after_a_failover_all_of_a_workers_connections_move_to_the_new_server(
    failover: Failover, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.listen.PROBE_S", 0.5)
    monkeypatch.setattr("rota.worker.lease_keeper.HEARTBEAT_S", 0.5)
    monkeypatch.setattr("rota.worker.copy_guard.CHECK_S", 0.5)
    async with Hand(failover.url, jobs) as hand:
        await hand.heard(JobSucceeded, job=put(failover.old, "quick"))
        await aeventually(lambda: _there(failover.old) == ROLES)
        await asyncio.to_thread(failover.happen)
        put(failover.new, "quick")  # its id may be that of the one before
        await hand.heard(JobSucceeded, 2)
        await aeventually(lambda: _there(failover.new) == ROLES and _there(failover.old) == [])


def _there(connection: Connection) -> list[str]:
    query = (
        "select distinct substr(application_name, 6) from pg_stat_activity "
        "where application_name like 'rota %' and datname = %s order by 1"
    )
    return [
        str(role)
        for (role,) in rows(
            connection, query.replace("like 'rota %'", "like 'rota %%'"), connection.info.dbname
        )
    ]
