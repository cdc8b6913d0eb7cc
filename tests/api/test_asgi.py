"""The endpoint that drains, over real HTTP behind a real server."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import httpx
import psycopg
import pytest
from psycopg.rows import TupleRow
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import rota
from rota.errors import ConfigurationError, UsageError
from rota.integrations.asgi import drain_endpoint, lifespan
from tests.support.asgi import serving_asgi
from tests.support.rules import rule
from tests.support.wait import eventually

SECRET = "a-secret-of-some-length"
ALLOWED = {"Authorization": f"Bearer {SECRET}"}


class Served(NamedTuple):
    """An ASGI application that is served."""

    port: int

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method: str = "POST", headers: dict[str, str] | None = None) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}/"
        return httpx.request(
            method, url, headers=ALLOWED if headers is None else headers, timeout=60
        )


@contextmanager
def served(application: Any) -> Iterator[Served]:
    with serving_asgi(application, ws="none", timeout_graceful_shutdown=10) as port:
        yield Served(port)


class Held:
    """A job type whose handlers wait to be let go."""

    def __init__(self, app: rota.App) -> None:
        self.begun, self.go, self.ends = threading.Event(), threading.Event(), list[str]()

        @app.job("held", retry=rota.Fixed("1s"))
        async def held() -> None:
            self.begun.set()
            try:
                while not self.go.is_set():  # noqa: ASYNC110 - it is another thread's
                    await asyncio.sleep(0.01)
                self.ends.append("done")
            except asyncio.CancelledError:
                self.ends.append("stopped")
                raise

        self.enqueue = held.enqueue


def statuses(connection: psycopg.Connection[TupleRow]) -> list[str]:
    return [status for (status,) in connection.execute("select status from rota.jobs order by id")]


@rule("M80")
def test_a_request_drains_and_answers_with_what_was_done(app: rota.App) -> None:
    @app.job("step")
    def step(left: int) -> None:
        if left:
            step.enqueue(left - 1)

    step.enqueue(2)
    mounted = Starlette(routes=[Mount("/", drain_endpoint(app, secret=SECRET))])
    with served(mounted) as server:
        first, second = server.ask("POST"), server.ask("GET")
    assert first.status_code == second.status_code == 200
    assert first.headers["content-type"] == "application/json"
    assert first.json() == {
        "state": "done",
        "claimed": 3,
        "succeeded": 3,
        "failed": 0,
        "dead": 0,
        "oldest_due": None,
        "paused": [],
    }
    assert second.json()["claimed"] == 0


@rule("M80", "M87")
def test_where_nothing_may_run_the_answer_says_so(
    app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    app.job("work")(lambda: None).enqueue()
    with served(drain_endpoint(app, secret=SECRET)) as server:
        connection.execute("select rota.pause_all()")
        # The scheme's case is the caller's.
        paused = server.ask("POST", {"Authorization": f"bearer {SECRET}"})
        connection.execute("select rota.resume_all()")
        connection.execute("update rota.installation set database_name = 'shop'")
        copy = server.ask("POST")
    assert (paused.status_code, paused.json()["claimed"], paused.json()["paused"]) == (
        200,
        0,
        ["default"],
    )
    assert (copy.status_code, copy.json()["error"]["type"]) == (
        500,
        "CopiedDatabase",
    ) and "rota queues resume --copy" in copy.text
    assert statuses(connection) == ["queued"]


@rule("M80")
def test_who_does_not_know_the_secret_starts_nothing(
    app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    app.job("work")(lambda: None).enqueue()
    with served(drain_endpoint(app, secret=SECRET)) as server:
        for wrong in (None, "Bearer wrong-wrong-wrong-wrong", SECRET, f"Basic {SECRET}"):
            answer = server.ask(headers={} if wrong is None else {"Authorization": wrong})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), (
                wrong
            )
            assert SECRET not in answer.text
        # Other methods are refused, and a look starts nothing.
        looks = (server.ask("DELETE"), server.ask("HEAD"), server.ask("HEAD", {}))
        assert [answer.status_code for answer in looks] == [405, 200, 401]
    assert statuses(connection) == ["queued"]


@rule("M80")
def test_a_second_request_gets_the_answer_that_one_is_under_way(app: rota.App) -> None:
    held = Held(app)
    held.enqueue()
    with served(drain_endpoint(app, secret=SECRET)) as server:
        first = server.connect()
        first.request("POST", "/", headers=ALLOWED)
        assert held.begun.wait(30)
        answer = server.ask()
        assert (answer.status_code, answer.json()) == (202, {"state": "busy"})
        held.go.set()
        assert json.loads(first.getresponse().read())["succeeded"] == 1
        first.close()
        assert server.ask().status_code == 200


@rule("M80", "M2")
def test_a_caller_that_goes_away_takes_nothing_along(
    app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    held = Held(app)
    held.enqueue()
    application, left = drain_endpoint(app, secret=SECRET), threading.Event()

    async def noticed(scope: Any, receive: Any, send: Any) -> None:
        await application(scope, receive, send)
        if scope["type"] == "http":
            left.set()

    with served(noticed) as server:
        caller = server.connect()
        caller.request("POST", "/", headers=ALLOWED)
        assert held.begun.wait(30)
        caller.close()
        assert left.wait(30)
        held.go.set()
        eventually(lambda: statuses(connection) == ["succeeded"], what="the job is over")


@rule("M83")
async def test_a_drain_that_fails_after_its_caller_left_is_logged(
    app: rota.App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = asyncio.Event()

    async def fail(*_: object) -> None:
        await fails.wait()
        raise OSError("the disk is full")

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_: Any) -> None:
        pytest.fail("nobody is there")

    monkeypatch.setattr(type(app), "_drain_by_request", fail)
    headers = [(name.lower().encode(), text.encode()) for name, text in ALLOWED.items()]
    messages = [{"type": "http.request"}, {"type": "http.disconnect"}]
    application = drain_endpoint(app, secret=SECRET)
    await application({"type": "http", "method": "POST", "headers": headers}, receive, send)
    fails.set()
    assert application._drain is not None
    await asyncio.wait([application._drain])
    await asyncio.sleep(0)  # its callback
    assert "the disk is full" in caplog.text


@rule("M80", "M83")
def test_the_end_of_the_server_hands_back_what_runs(
    app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    held = Held(app)
    held.enqueue()
    application = drain_endpoint(app, secret=SECRET, grace="0s")
    with served(application) as server:
        caller = server.connect()
        caller.request("POST", "/", headers=ALLOWED)
        assert held.begun.wait(30)
        caller.close()
    assert held.ends == ["stopped"]
    assert statuses(connection) == ["queued"]


@rule("M80", "M83")
def test_a_drain_stops_when_its_seconds_are_over_and_the_answer_comes(
    app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    held = Held(app)
    held.enqueue()
    with served(drain_endpoint(app, secret=SECRET, max_time="1s", grace="0s")) as server:
        answer = server.ask()
        for _ in range(20):
            if answer.json()["claimed"]:
                break
            # The second was over before the drain had come to its first claim.
            answer = server.ask()
    assert (answer.status_code, answer.json()["claimed"], answer.json()["succeeded"]) == (200, 1, 0)
    assert answer.json()["oldest_due"] is not None
    assert statuses(connection) == ["queued"]


@rule("M80")
def test_without_a_database_the_answer_is_to_come_again() -> None:
    app = rota.App("postgresql://127.0.0.1:9/none?connect_timeout=2")
    app.job("work")(lambda: None)
    with served(drain_endpoint(app, secret=SECRET)) as server:
        answer = server.ask()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    assert answer.json()["error"]["type"] == "DatabaseUnavailable"


def test_a_secret_that_could_be_guessed_and_times_out_of_range_are_refused(app: rota.App) -> None:
    secrets: list[Any] = ["", "short", "with a space in the middle", "long enough but ümlaut", None]
    for secret in (*secrets, b"sixteen-or-more-bytes"):
        with pytest.raises(ConfigurationError, match="at least 16") as refused:
            drain_endpoint(app, secret=secret)
        assert not secret or str(secret) not in str(refused.value)
    wrong: list[Any] = [0, 25, "0s", "999ms", "61m", "-1s", float("nan"), "25", None, True]
    for max_time in wrong:
        with pytest.raises(UsageError, match="max_time must"):
            drain_endpoint(app, secret=SECRET, max_time=max_time)
    with pytest.raises(UsageError, match="grace"):
        lifespan(app, grace="soon")


# The lifespan of a site


def make_starlette(lifespan: Any) -> Any:
    return Starlette(lifespan=lifespan)


def make_litestar(lifespan: Any) -> Any:
    if find_spec("litestar") is None:
        pytest.skip("NO litestar: asgi.lifespan was not tried with it")
    return import_module("litestar").Litestar(lifespan=[lifespan])


@rule("M20", "M83")
@pytest.mark.parametrize("make", [make_starlette, make_litestar])
def test_a_site_may_run_a_worker_whose_jobs_return_to_the_queue_when_it_ends(
    make: Callable[[Any], Any], app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    begun = threading.Event()

    @app.job("hang")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    app.sync()
    with served(make(lifespan(app, run_worker=True, grace="0.1s"))):
        hang.enqueue()
        assert begun.wait(30)
        assert statuses(connection) == ["running"]
    assert statuses(connection) == ["queued"]


def test_the_connections_of_an_app_are_closed_with_its_site(
    app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    @app.job("nothing")
    async def nothing() -> None: ...

    async def use(_: Any) -> JSONResponse:
        return JSONResponse((await nothing.aenqueue()).to_dict())

    site = Starlette(routes=[Route("/", use, methods=["POST"])], lifespan=lifespan(app))
    with served(site) as server:
        assert server.ask().status_code == 200
        assert count_others(connection) > 0
    eventually(lambda: count_others(connection) == 0)


def count_others(connection: psycopg.Connection[TupleRow]) -> int:
    """How many connections to the database there are beside the test's."""
    [(count,)] = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid()"
    ).fetchall()
    return int(count)


async def test_a_worker_that_fails_is_logged_and_the_site_continues(
    empty_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with lifespan(rota.App(empty_database), run_worker=True)(None):
        await asyncio.to_thread(eventually, lambda: "has ended: this App has no" in caplog.text)
