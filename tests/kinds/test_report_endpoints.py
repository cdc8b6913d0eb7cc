"""The endpoints of reports, through a real server: who has a link, or is allowed, gets the file."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastapi
import httpx
import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.kinds import report
from tests.support.asgi import serving_asgi
from tests.support.rules import rule
from tests.support.wait import eventually

SECRET = "a secret of sixteen characters or more"
Made = tuple[rota.App, report.Reports, report.ReportRun]


@pytest.fixture
def made(database: str, tmp_path: Path) -> Iterator[Made]:
    """A report that is ready."""
    reports = report.Reports(tmp_path)
    app = rota.App(database, jobs=[reports.jobs])
    app.migrate()

    @reports.report("sales/2026", columns=["n"])
    class Sales:
        @staticmethod
        def ranges(params: dict[str, Any]) -> list[int]:
            return [1]

        @staticmethod
        def rows(params: dict[str, Any], range: int) -> Iterator[tuple[str]]:
            yield from (("x" * 100,) for _ in builtin_range(2_000))

    run = reports.request("sales/2026")
    app.drain()
    yield app, reports, run.refresh()
    app.close()


builtin_range = range


@contextmanager
def serving(endpoints: report.Endpoints) -> Iterator[str]:
    """Serve them, mounted under a path; yield its URL."""
    app = fastapi.FastAPI()
    app.mount("/reports", endpoints.asgi)
    with serving_asgi(app, lifespan="off") as port:
        yield f"http://127.0.0.1:{port}/reports"


@contextmanager
def asking(endpoints: report.Endpoints, kind: str) -> Iterator[httpx.Client]:
    """A client of theirs: over a server, or of a WSGI application that is mounted under a path."""
    if kind == "asgi":
        with serving(endpoints) as url, httpx.Client(base_url=url) as client:
            yield client
        return

    def mounted(environ: Any, start_response: Any) -> Any:
        environ["SCRIPT_NAME"] = "/reports"
        environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix("/reports")
        return endpoints.wsgi(environ, start_response)

    transport = httpx.WSGITransport(app=mounted)
    with httpx.Client(transport=transport, base_url="http://shop.example/reports") as client:
        yield client


@rule("M72")
def test_the_file_is_given_to_who_has_a_link_that_has_not_expired(made: Made) -> None:
    _, reports, run = made
    endpoints = report.Endpoints(reports, secret=SECRET)
    other = reports.request("sales/2026", {"of": "another"})
    link = endpoints.link(run)
    for kind in ("asgi", "wsgi"):
        with asking(endpoints, kind) as client:
            got = client.get(link)
            assert got.status_code == 200
            assert hashlib.sha256(got.content).hexdigest() == run.checksum
            assert got.headers["content-disposition"] == 'attachment; filename="sales-2026.csv"'
            assert got.headers["x-content-type-options"] == "nosniff"
            status = client.get(link.replace("/file", "")).json()
            assert (status["status"], status["rows"], status["progress"]) == (
                "ready",
                2000,
                "ready",
            )
            assert client.head(link).headers["content-length"] == str(run.size)
            for wrong in (
                f"/{run.id}/file",
                link.replace("signature=", "signature=0"),
                link.replace(f"/{run.id}/", f"/{other.id}/"),
                link.replace(f"/{run.id}/", "/99/"),
                endpoints.link(run, expires_s=-1),
                f"/{run.id}/file?expires={int(time.time()) + 99}&signature=",
                f"/{run.id}/file?expires=x&signature=\N{SNOWMAN}",
            ):
                assert client.get(wrong).status_code in (403, 404), (kind, wrong)
            assert client.post(link).status_code == 405
            assert client.get("/x").status_code == 404
    assert run.file is not None
    reports.store.delete(run.file)
    with asking(endpoints, "wsgi") as client:
        assert client.get(link).status_code == 410


@rule("M72")
def test_why_a_report_failed_is_not_for_who_has_a_link(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reports, run = made
    failed = replace(run, status="failed", error="hunter2")
    monkeypatch.setattr(reports, "get", lambda run: failed)
    endpoints = report.Endpoints(reports, secret=SECRET)
    assert failed.progress == "failed: hunter2"
    with asking(endpoints, "wsgi") as client:
        status = client.get(endpoints.link(run).replace("/file", "")).json()
    assert (status["status"], status["progress"]) == ("failed", "failed")


@rule("M72")
def test_the_application_s_own_check_allows_a_request(made: Made) -> None:
    _, reports, run = made

    def allow(asked: report.ReportRun, request: Any) -> bool:
        if "headers" in request:
            return (b"x-user", b"anna") in request["headers"]
        return bool(request.get("HTTP_X_USER") == "anna")

    endpoints = report.Endpoints(reports, allow=allow)
    for kind in ("asgi", "wsgi"):
        with asking(endpoints, kind) as client:
            assert client.get(f"/{run.id}/file").status_code == 403
            assert client.get(f"/{run.id}", headers={"x-user": "anna"}).status_code == 200
            assert client.get(f"/{run.id}/file", headers={"x-user": "anna"}).status_code == 200
    with pytest.raises(rota.UsageError, match="no secret to sign"):
        endpoints.link(run)


def test_endpoints_that_would_give_to_everybody_are_refused(tmp_path: Path) -> None:
    reports = report.Reports(tmp_path)
    with pytest.raises(rota.UsageError, match="a secret, or a check"):
        report.Endpoints(reports)
    with pytest.raises(rota.UsageError, match="at least 16"):
        report.Endpoints(reports, secret="short")

    async def allow(run: report.ReportRun, request: Any) -> bool:
        return False

    wrong: Any = allow
    with pytest.raises(rota.UsageError, match="no async function"):
        report.Endpoints(reports, allow=wrong)


class Endless(io.RawIOBase):
    """A file that goes on until a test is over."""

    def __init__(self) -> None:
        self.is_over = False

    def read(self, size: int = -1) -> bytes:
        return b"" if self.is_over else bytes(size)


@pytest.mark.nightly
@rule("M72")
def test_a_file_is_closed_when_its_reader_has_gone(
    made: Made, connection: psycopg.Connection[TupleRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reports, run = made
    connection.execute("update rota.report_run set size = 1e15")
    file = Endless()
    monkeypatch.setattr(reports.store, "open", lambda name: file)
    endpoints = report.Endpoints(reports, secret=SECRET)
    with serving(endpoints) as url:
        with httpx.stream("GET", f"{url}{endpoints.link(run)}") as response:
            next(response.iter_raw())
        try:
            eventually(lambda: file.closed, 60)
        finally:
            file.is_over = True
