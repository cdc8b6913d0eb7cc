"""The endpoint that drains, as a WSGI application over real HTTP. What it shares with that of ASGI
is tried there; the page on it tries both in Flask and Django."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.validate import validator

import pytest

import rota
from rota.integrations import wsgi
from tests.api.rows import Rows
from tests.support.rules import rule
from tests.support.server import unused_port

SECRET = "a-secret-of-some-length"
ALLOWED = {"Authorization": f"Bearer {SECRET}"}

Got = tuple[int, dict[str, str], Any]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None: ...


@contextmanager
def serving(application: Any) -> Iterator[int]:
    """Serve a WSGI application on a port of the loopback."""
    with make_server("127.0.0.1", 0, application, _Server, _Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def ask(port: int, method: str = "POST", path: str = "/", **headers: str) -> Got:
    """Send one request; return status, headers and the JSON of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, json.loads(text) if text else None
    finally:
        connection.close()


@rule("M80")
def test_a_request_drains_and_what_may_not_starts_nothing(app: rota.App, rows: Rows) -> None:
    app.job("work")(lambda: None)
    jobs = [one.id for one in app.types["work"].enqueue_many([{}, {}, {}])]
    refused: tuple[tuple[str, dict[str, str], int], ...] = (
        ("POST", {}, 401),
        ("POST", {"Authorization": "Bearer wrong-secret-of-some-length"}, 401),
        ("GET", {"Authorization": "Bearer sécret-of-some-length"}, 401),
        ("DELETE", ALLOWED, 405),
        ("HEAD", ALLOWED, 200),
    )
    with serving(validator(wsgi.drain_endpoint(app, secret=SECRET))) as port:
        for method, sent, answer in refused:
            assert ask(port, method, **sent)[0] == answer, (method, sent)
        assert [rows.job(job)["claims"] for job in jobs] == [0, 0, 0]
        status, headers, said = ask(port, **ALLOWED)
    assert (status, headers["content-type"], headers["cache-control"]) == (
        200,
        "application/json",
        "no-store",
    )
    assert (said["state"], said["claimed"], said["succeeded"]) == ("done", 3, 3)


@rule("M80")
def test_a_second_request_gets_the_answer_that_one_is_under_way(app: rota.App) -> None:
    began, may_end = threading.Event(), threading.Event()

    @app.job("work")
    def work() -> None:
        began.set()
        may_end.wait(30)

    work.enqueue()
    first: list[Got] = []
    with serving(wsgi.drain_endpoint(app, secret=SECRET)) as port:
        asking = threading.Thread(target=lambda: first.append(ask(port, **ALLOWED)))
        asking.start()
        assert began.wait(30)
        assert ask(port, **ALLOWED)[::2] == (202, {"state": "busy"})
        assert work.using(delay="1h").enqueue().created  # in another thread, meanwhile
        may_end.set()
        asking.join()
        assert first[0][2]["succeeded"] == 1
        assert ask(port, **ALLOWED)[2]["state"] == "done"  # the next one drains again


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
