"""An enqueue in a web request, while the database is away: it fails in time, with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
import pytest

import rota
from rota.client import enqueue
from rota.store import db
from rota.store.db import Patience
from rota.store.migrate import migrate
from rota.store.pools import POOL_MAX
from tests.support.proxy import Proxy
from tests.support.rules import rule
from tests.support.server import PostgresServer, unused_port
from tests.worker.table import Connection

CONNECT_S = 1
ANSWER_S = 1.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in production, in less time."""
    monkeypatch.setattr(db, "CONNECT_TIMEOUT_S", CONNECT_S)
    for name in ("ONE", "MANY"):
        doubt = getattr(enqueue, name).doubt
        monkeypatch.setitem(getattr(enqueue, f"OF_{name}"), "patience", Patience(ANSWER_S, doubt))


@dataclass
class Request:
    """A request that enqueues one job, or two in bulk, in plain code or on a loop."""

    is_async: bool
    is_bulk: bool

    def __call__(self, app: rota.App) -> None:
        """Wait until it fails; the error is in `error`."""
        if "charge" not in app.types:
            app.job("charge")(lambda: None)
        with pytest.raises(rota.DatabaseUnavailable) as raised:
            self.do(app)
        self.error = raised.value

    def do(self, app: rota.App) -> None:
        """Send it."""
        charge = app.types["charge"]
        if self.is_async:
            asyncio.run(self._ado(app))
        elif self.is_bulk:
            charge.enqueue_many([{}, {}])
        else:
            charge.enqueue()

    async def _ado(self, app: rota.App) -> None:
        charge = app.types["charge"]
        try:
            await (charge.aenqueue_many([{}, {}]) if self.is_bulk else charge.aenqueue())
        finally:
            await app.aclose()


@pytest.fixture(params=[(False, True), (True, False)], ids=["plain bulk", "async"])
def request_of_web(request: pytest.FixtureRequest) -> Request:
    return Request(*request.param)


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy, database: str) -> Iterator[rota.App]:
    """An App that finds the test's database by way of the proxy."""
    app = rota.App(proxy.url(database.rpartition("/")[2]))
    yield app
    app.close()


def _count(connection: Connection) -> int:
    [[count]] = connection.execute("select count(*) from rota.job").fetchall()
    return int(count)


@rule("M1")
def test_a_port_where_no_server_listens_is_named_at_once(request_of_web: Request) -> None:
    request_of_web(rota.App(f"postgresql://postgres@127.0.0.1:{unused_port()}/x"))
    assert "refused" in str(request_of_web.error)
    assert not request_of_web.error.in_doubt


@rule("M1")
def test_a_server_that_accepts_and_never_answers_is_given_up(
    request_of_web: Request, proxy: Proxy, through: rota.App
) -> None:
    proxy.silence(new_ones_too=True)
    request_of_web(through)
    assert "timeout" in str(request_of_web.error)
    assert not request_of_web.error.in_doubt


@rule("M1")
def test_a_connection_that_falls_silent_is_given_up_and_the_job_is_in_doubt(
    proxy: Proxy, through: rota.App, connection: Connection
) -> None:
    charge = through.job("charge")(lambda: None)
    charge.enqueue()
    proxy.silence()
    request = Request(is_async=False, is_bulk=False)
    request(through)
    assert str(request.error) == (
        f"the database does not answer: no answer within {ANSWER_S:g} s; "
        "the job may have been inserted: look for it, or enqueue it again with a key"
    )
    assert request.error.in_doubt
    charge.enqueue()  # the next one gets a new connection
    assert _count(connection) == 2


@rule("M1")
def test_a_server_that_stopped_behind_open_connections_is_named(
    own_server: PostgresServer,
) -> None:
    migrate(own_server.url())
    requests = [Request(is_async=False, is_bulk=False), Request(is_async=True, is_bulk=True)]
    apps = [rota.App(own_server.url()) for _ in requests]
    for request, app in zip(requests, apps, strict=True):
        app.job("charge")(lambda: None)
        request.do(app)
    own_server.stop()
    for request, app in zip(requests, apps, strict=True):
        request(app)
        assert "does not answer" in str(request.error)
        app.close()


@rule("M1")
def test_a_full_pool_is_said_to_be_full(database: str, connection: Connection) -> None:
    app = rota.App(database)
    request = Request(is_async=False, is_bulk=False)
    with ExitStack() as borrowed:
        for _ in range(POOL_MAX):
            borrowed.enter_context(app._database._pools.connection())
        request(app)
    assert f"all {POOL_MAX} that the App may have are in use" in str(request.error)
    assert not request.error.in_doubt
    request.do(app)
    assert _count(connection) == 1
    app.close()


@rule("M1")
@pytest.mark.parametrize("notify", [True, False])
def test_an_enqueue_behind_a_lock_is_cancelled_and_inserts_nothing(
    database: str, connection: Connection, request_of_web: Request, *, notify: bool
) -> None:
    app = rota.App(database, notify=notify)
    with psycopg.connect(database) as locking:
        locking.execute("lock table rota.job in access exclusive mode")
        request_of_web(app)
    assert f"cancelled: no answer within {ANSWER_S:g} s" in str(request_of_web.error)
    assert not request_of_web.error.in_doubt
    assert _count(connection) == 0
    app.close()
