"""The endpoint that drains, as a WSGI application. What it shares with that of ASGI is tried there;
the page on it tries both in Flask and Django, over HTTP."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from wsgiref.validate import validator

import httpx
import pytest

import rota
from rota.integrations import wsgi
from tests.api.rows import Rows
from tests.support.rules import rule
from tests.support.server import unused_port

SECRET = "a-secret-of-some-length"
ALLOWED = {"Authorization": f"Bearer {SECRET}"}


def ask(application: Any, method: str = "POST", **headers: str) -> httpx.Response:
    """Send a WSGI application one request."""
    with httpx.Client(transport=httpx.WSGITransport(application)) as client:
        return client.request(method, "http://shop.example/", headers=headers)


@rule("M80")
def test_a_request_drains_and_what_may_not_starts_nothing(app: rota.App, rows: Rows) -> None:
    app.job("work")(lambda: None)
    jobs = [job.id for job in app.types["work"].enqueue_many([{}, {}, {}])]
    endpoint = wsgi.drain_endpoint(app, secret=SECRET)
    refused: tuple[tuple[str, dict[str, str], int], ...] = (
        ("POST", {}, 401),
        ("POST", {"Authorization": "Bearer wrong-secret-of-some-length"}, 401),
        ("DELETE", ALLOWED, 405),
        ("HEAD", ALLOWED, 200),
    )
    for method, sent, status in refused:
        assert ask(validator(endpoint), method, **sent).status_code == status, (method, sent)
    assert endpoint.answer("GET", "Bearer s\xe9cret-of-some-length").status == 401
    assert [rows.job(job)["claims"] for job in jobs] == [0, 0, 0]
    answer = ask(validator(endpoint), **ALLOWED)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store"
    said = answer.json()
    assert (said["state"], said["claimed"], said["succeeded"]) == ("done", 3, 3)


@rule("M80")
def test_a_second_request_gets_the_answer_that_one_is_under_way(app: rota.App) -> None:
    began, may_end = threading.Event(), threading.Event()

    @app.job("work")
    def work() -> None:
        began.set()
        may_end.wait(30)

    work.enqueue()
    endpoint = wsgi.drain_endpoint(app, secret=SECRET)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, endpoint, **ALLOWED)
        assert began.wait(30)
        second = ask(endpoint, **ALLOWED)
        assert (second.status_code, second.json()) == (202, {"state": "busy"})
        assert work.using(delay="1h").enqueue().created  # in another thread, meanwhile
        may_end.set()
        assert first.result(60).json()["succeeded"] == 1
    assert ask(endpoint, **ALLOWED).json()["state"] == "done"  # the next one drains again


@rule("M80")
def test_without_a_database_the_answer_is_to_come_again() -> None:
    app = rota.App(f"postgresql://postgres@127.0.0.1:{unused_port()}/x")
    app.job("work")(lambda: None)
    answer = wsgi.drain_endpoint(app, secret=SECRET).answer("POST", f"Bearer {SECRET}")
    assert (answer.status, answer.headers["retry-after"]) == (503, "60")
    assert answer.value["error"]["type"] == "DatabaseUnavailable"


async def test_on_an_event_loop_it_says_what_to_use_instead(app: rota.App) -> None:
    app.job("work")(lambda: None)
    with pytest.raises(rota.UsageError, match=r"use rota\.integrations\.asgi"):
        wsgi.drain_endpoint(app, secret=SECRET).answer("POST", ALLOWED["Authorization"])
