"""The dashboard: its pages, who may see them, and what they do."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from contextlib import ExitStack, suppress
from html import unescape
from importlib.resources import files
from io import BytesIO
from itertools import product
from types import SimpleNamespace
from typing import Any, Literal

import httpx
import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.client.session import open_session
from rota.dashboard import VERBS, Access, Dashboard, dashboard, kept, serving
from rota.dashboard.access import is_from_here
from rota.dashboard.request import Request
from tests.dashboard.conftest import HERE, HOSTILE, PREFIX, Serve, Site
from tests.store.planned import move_clock
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


def fill(app: rota.App) -> dict[str, int]:
    """Jobs of several statuses: queued, succeeded, dead, cancelled."""
    greet = app.types["greet"]
    made = {
        "succeeded": greet.enqueue(1, "ok").id,
        "dead": greet.enqueue(2, "dies").id,
        "cancelled": greet.enqueue(3, "late").id,
    }
    app.cancel(made["cancelled"], why=HOSTILE.replace("\x1b", ""))
    app.drain()
    made["queued"] = greet.using(delay="1h").enqueue(4, HOSTILE.replace("\x1b", "")).id
    return made


def wait(app: rota.App) -> int:
    """A job that waits for an hour."""
    return int(app.types["greet"].using(delay="1h").enqueue(4, "x").id)


@pytest.mark.nightly
@rule("M85")
def test_every_link_under_a_prefix_leads_to_a_page_that_is_safe(
    app: rota.App, serve: Serve
) -> None:
    fill(app)
    site = serve()
    seen: set[str] = set()
    left = [PREFIX + "/"]
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = site.client.get(site.url.removesuffix(PREFIX) + path)
        assert answer.status_code == 200, (path, answer.text)
        security = answer.headers["content-security-policy"]
        assert "default-src 'none'" in security and "unsafe" not in security
        if "html" in answer.headers["content-type"]:
            assert answer.headers["cache-control"] == "no-store"
            assert "<script>" not in answer.text and " style=" not in answer.text
            assert not re.search(r"\son\w+=", answer.text)
            links = re.findall(r'(?:href|src|action|formaction)="([^"]*)"', answer.text)
            for link in map(unescape, links):
                assert link.startswith((PREFIX + "/", "#", "data:,")), (path, link)
            found = re.findall(r'(?:href|src)="(/[^"]*)"', answer.text)
            left += [unescape(link) for link in found]
    assert len(seen) > 25


@rule("M85")
def test_what_strangers_wrote_is_shown_as_text(app: rota.App, serve: Serve) -> None:
    jobs = fill(app)
    site = serve()
    for path in (f"/jobs/{jobs['dead']}", f"/jobs/{jobs['queued']}", "/dead", "/jobs", "/log", "/"):
        text = site.get(path).text
        assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in site.get("/dead").text


@rule("M85")
def test_jobs_are_filtered_and_paged_by_the_url(app: rota.App, serve: Serve) -> None:
    greet = app.types["greet"]
    app.enqueue_many([greet.using(delay="1h").new(number, "x") for number in range(120)])
    site = serve()
    pages = []
    path = "/jobs?queue=default"
    while path:
        text = site.get(path).text
        pages.append(re.findall(r'name="job" value="(\d+)"', text))
        older = re.search(r'rel="next" href="([^"]+)"', text)
        path = unescape(older[1]).removeprefix(PREFIX) if older else ""
    assert [len(page) for page in pages] == [50, 50, 20]
    assert len({id_ for page in pages for id_ in page}) == 120
    found = site.get("/jobs", params={"payload": "user_id=7", "status": "queued"}).text
    assert len(re.findall(r'name="job"', found)) == 1
    assert "No jobs match" in site.get("/jobs?job_type=none").text


@rule("M85")
def test_a_search_says_what_it_left_out_and_leads_there(
    app: rota.App, serve: Serve, connection: Connection
) -> None:
    jobs = fill(app)
    move_clock(connection, "2 days")
    site = serve()
    page = site.get("/jobs?payload=user_id%3D1").text
    assert 'name="job"' not in page
    [longer] = re.findall(r'href="([^"]+)">Look', page)
    found = site.get(unescape(longer).removeprefix(PREFIX)).text
    assert f'value="{jobs["succeeded"]}"' in found and ">Look" not in found
    assert ">Look" not in site.get("/dead").text


@rule("M85")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/jobs?payload=4711&queue=mail", "Argument must be"),
        ("/dead?since=yesterday&queue=mail", "Since must be"),
        ("/errors?since=yesterday&job_type=mail", "Since must be"),
    ],
)
def test_a_filter_that_is_refused_keeps_its_form(serve: Serve, path: str, said: str) -> None:
    refused = serve().get(path)
    assert refused.status_code == 400 and said in refused.text
    for value in ("mail", path.partition("=")[2].partition("&")[0]):
        assert f'value="{value}"' in refused.text
    wanted = {"accept": "application/json"}
    assert said in serve().get(path, headers=wanted).json()["error"]


@rule("M87")
def test_an_action_records_who_and_why(app: rota.App, serve: Serve) -> None:
    jobs = fill(app)
    site = serve()
    refused = site.post("/jobs/retry", job=jobs["dead"], why=" ")
    assert refused.status_code == 400 and "reason" in refused.text
    assert app.get(jobs["dead"]).resolution is None
    done = site.post(
        "/jobs/retry", job=jobs["dead"], why="it is mended", back="/dead?queue=default"
    )
    assert done.status_code == 303
    assert done.headers["location"] == f"{PREFIX}/dead?queue=default"
    assert "retry: 1 of 1 done" in site.get("/dead").text
    assert "retry: 1" not in site.get("/dead").text  # it is said once
    [action] = [entry for entry in app.jobs.log() if entry.verb == "requeue"]
    assert (action.by, action.why, action.job) == ("ann", "it is mended", jobs["dead"])
    for wrong in ("9" * 5_000, "٣", "x", ""):
        assert site.post("/jobs/cancel", job=wrong, why="x").status_code == 400
    site.post("/jobs/cancel", job=jobs["queued"], why="not wanted")
    assert app.get(jobs["queued"]).status == "cancelled"
    both = site.post("/jobs/archive", job=[jobs["queued"], 999], why="x")
    assert both.status_code == 303 and "archive: 0 of 2 done" in site.get("/").text


@rule("M87")
def test_queues_schedules_and_effects_are_acted_on(
    app: rota.App, serve: Serve, connection: Connection
) -> None:
    site = serve()
    site.post("/queues/pause", queue="default", why="they move", **{"for": "1h"})
    [pause] = app.queues.pauses()
    assert (pause.queue, pause.paused_by, pause.paused_why) == ("default", "ann", "they move")
    assert pause.paused_until is not None
    assert "they move" in site.get("/queues").text
    site.post("/queues/resume", queue="default", why="they are there")
    assert app.queues.pauses() == []
    site.post("/schedules/pause", schedule="nightly", why="holidays")
    assert app.schedules.get("nightly").paused_by == "ann"
    site.post("/schedules/trigger", schedule="nightly", why="now")
    assert app.find(job_type="greet")[0].schedule == "nightly"
    # What runs the pages may have older time zones than the workers.
    connection.execute("update rota.schedule set timezone = 'Mars/Olympus'")
    page = site.get("/schedules/nightly").text
    assert "holidays" in page and "there is no time zone &#39;Mars/Olympus&#39;" in page


@rule("M87")
@pytest.mark.parametrize("gateway", ["asgi", "wsgi"])
def test_a_form_of_another_site_does_nothing(app: rota.App, serve: Serve, gateway: str) -> None:
    job = wait(app)
    site = serve(gateway)
    form = {"job": job, "why": "x"}
    host = re.sub("https?://([^/]+).*", r"\1", site.url)
    for headers in (
        {},
        {"sec-fetch-site": "cross-site", "origin": f"http://{host}"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null", "host": ""},
        {"origin": "http://[evil"},
    ):
        answer = site.client.post(site.url + "/jobs/cancel", data=form, headers=headers)
        assert answer.status_code == 403, headers
    assert app.get(job).status == "queued"
    origin = {"origin": f"http://{host}"}
    answer = site.client.post(site.url + "/jobs/cancel", data=form, headers=origin)
    assert answer.status_code == 303
    assert app.get(job).status == "cancelled"


@rule("M87")
def test_nobody_is_sent_to_another_site(app: rota.App, serve: Serve) -> None:
    site = serve()
    for user, back in enumerate(("//evil.example", "https://evil.example/", "evil", "/\\evil", "")):
        job = app.types["greet"].using(delay="1h").enqueue(user, "x").id
        done = site.post("/jobs/cancel", job=job, why="x", back=back)
        assert done.headers["location"].startswith(PREFIX + "/"), back


def test_who_is_not_authorized_sees_nothing(app: rota.App, serve: Serve) -> None:
    job = wait(app)

    async def later(scope: Any) -> Access:
        return Access("ann")

    answers: list[Any] = [None, True, {"who": "ann"}]
    for gateway, answer in product(("asgi", "wsgi"), answers):
        site = serve(gateway, authorize=lambda scope, answer=answer: answer)
        for path in ("/", "/jobs", f"/jobs/{job}"):
            refused = site.get(path)
            assert refused.status_code == 403 and "greet" not in refused.text
        assert site.post("/jobs/cancel", job=job, why="x").status_code == 403
        assert site.get("/static/style.css").status_code == 200
    with pytest.raises(rota.UsageError, match="no async function"):
        dashboard(app, authorize=later)  # type: ignore[arg-type]
    assert app.get(job).status == "queued"


@rule("M87")
def test_some_may_do_some_things_and_others_may_only_look(app: rota.App, serve: Serve) -> None:
    jobs = fill(app)
    looks = serve("asgi", authorize=lambda scope: Access("bo", frozenset()))
    text = looks.get(f"/jobs/{jobs['dead']}").text
    assert "<form" not in text and "bo, who may look only" in text
    assert looks.post("/jobs/cancel", job=jobs["queued"], why="x").status_code == 403
    retries = serve("asgi", authorize=lambda scope: Access("cy", frozenset({"retry"})))
    assert "Archive" not in retries.get(f"/jobs/{jobs['dead']}").text
    assert retries.post("/jobs/archive", job=jobs["dead"], why="x").status_code == 403
    assert retries.post("/jobs/retry", job=jobs["dead"], why="x").status_code == 303
    for path in ("/queues/pause", "/schedules/trigger", "/effects/resolve", "/breakers/reset"):
        assert retries.post(path, why="x").status_code == 403


def test_without_authorize_this_machine_may_look_and_nobody_else(
    app: rota.App, serve: Serve
) -> None:
    job = wait(app)
    site = serve("asgi", authorize=None)
    assert site.get("/jobs").status_code == 200
    assert site.post("/jobs/cancel", job=job, why="x").status_code == 403
    elsewhere = site.client.get(site.url + "/jobs", headers={"host": "evil.example"})
    assert elsewhere.status_code == 403 and "greet" not in elsewhere.text
    assert site.client.get(site.url + "/jobs", headers={"host": "[evil"}).status_code == 403
    for host in ("localhost:1", "[::1]:1", "127.0.0.2"):
        assert site.client.get(site.url + "/jobs", headers={"host": host}).status_code == 200
    made = dashboard(app)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/jobs", "QUERY_STRING": ""}
    said: list[str] = []
    peers = ("192.0.2.7", "", None, "::2", "nonsense")
    for peer in peers:
        body = made.wsgi(
            environ | {"REMOTE_ADDR": peer, "HTTP_HOST": "localhost"},
            lambda status, _: said.append(status),
        )
        assert b"authorize=" in b"".join(body)
    assert said == ["403 Forbidden"] * len(peers)


@rule("M85")
def test_who_looks_writes_nothing_and_waits_for_nobody(
    app: rota.App, serve: Serve, connection: Connection, database: str
) -> None:
    with (
        pytest.raises(rota.RotaError, match="read-only"),
        open_session(app, is_read_only=True) as opened,
    ):
        opened.cancel(1)
    with open_session(app, is_read_only=True) as opened:
        assert opened.connection.execute("show statement_timeout").fetchone() == ("3s",)
    site = serve()
    with psycopg.connect(database) as other:
        other.execute("lock table rota.job")
        answer = site.get("/jobs")
    assert answer.status_code == 503 and "took too long" in answer.text
    assert site.get("/jobs").status_code == 200


@rule("M85")
def test_pages_are_facts_for_who_asks_for_json(app: rota.App, serve: Serve) -> None:
    jobs = fill(app)
    site = serve()
    wanted = {"accept": "application/json"}
    page = site.get(f"/jobs/{jobs['dead']}", headers=wanted).json()
    assert page["job"]["job"]["status"] == "dead"
    assert page["job"]["timeline"][0]["what"] == "enqueued"
    listed = site.get("/jobs?status=dead", headers=wanted).json()
    assert [job["id"] for job in listed["jobs"]] == [jobs["dead"]]
    assert site.get("/jobs/999", headers=wanted).json()["error"].startswith("no job 999")


def test_what_is_not_there_is_said(app: rota.App, serve: Serve) -> None:
    site = serve()
    for path in ("/jobs/999", "/schedules/none", "/nothing", "/jobs/x", "/static/../site.py"):
        assert site.get(path).status_code == 404, path
    put = site.client.put(site.url + "/jobs", headers=HERE)
    assert put.status_code == 405 and put.headers["allow"] == "GET, HEAD, POST"
    assert site.post("/many/erase", why="x").status_code == 404
    assert "a stranger" not in site.get("/?said=a+stranger").text


def post(gateway: str, made: Dashboard, length: str, *parts: bytes) -> tuple[int, dict[str, str]]:
    """Send a form in parts, and go away; return the status and the headers of the answer. Without
    parts the form must not be read."""
    heard: list[Any] = []
    sent = {"host": "localhost", "content-type": "application/x-www-form-urlencoded", **HERE}
    if gateway == "wsgi":
        environ = {f"HTTP_{name.upper().replace('-', '_')}": text for name, text in sent.items()}
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": "/jobs/cancel"}
        environ |= {"CONTENT_TYPE": environ["HTTP_CONTENT_TYPE"], "CONTENT_LENGTH": length}
        body = BytesIO(b"".join(parts)) if parts else None
        made.wsgi({**environ, "wsgi.input": body}, lambda *answer: heard.extend(answer))
        return int(heard[0][:3]), dict(heard[1])
    coming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    coming += [{"type": "http.disconnect"}] if parts else []
    if length == str(sum(map(len, parts))):
        coming[-2]["more_body"] = False

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    async def send(message: dict[str, Any]) -> None:
        heard.append(message)

    sent |= {"content-length": length} if length else {"transfer-encoding": "chunked"}
    headers = [(name.encode(), value.encode()) for name, value in sent.items()]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/jobs/cancel"}
    asyncio.run(made.asgi({**scope, "query_string": b"", "headers": headers}, receive, send))
    got = {name.decode(): value.decode() for name, value in heard[0]["headers"]}
    return heard[0]["status"], got


@rule("M87")
@pytest.mark.parametrize("gateway", ["asgi", "wsgi"])
def test_nobody_s_form_is_read_before_he_may_send_it(app: rota.App, gateway: str) -> None:
    job = wait(app)
    form = f"job={job}&why=x".encode()
    size = str(len(form))

    def make(access: Access | None) -> Dashboard:
        return dashboard(app, authorize=lambda _: access)

    made = {
        "nobody": make(None),
        "looks": make(Access("bo", frozenset())),
        "acts": make(Access("ann")),
    }
    for who, length, status in (
        ("nobody", size, 403),
        ("looks", size, 403),
        ("acts", "abc", 400),
        ("acts", "-1", 400),
        ("acts", f"{size}, {size}", 400),
        ("acts", "999999999", 413),
        ("acts", "9" * 5_000, 413),
    ):
        assert post(gateway, made[who], length)[0] == status, (who, length[:20])
    assert post(gateway, made["acts"], "100", form)[0] == 408  # some of it is missing
    if gateway == "asgi":
        asks = serving._Login(app, "a long enough password", VERBS)
        refused, headers = post(gateway, asks, "999999999")
        assert (refused, headers["connection"]) == (401, "close")
        assert post(gateway, made["acts"], "", form)[0] == 408
        endless = [b"x" * 100_000] * 3 + [b"it would have read on"]
        assert post(gateway, made["acts"], "", *endless)[0] == 413
    assert app.get(job).status == "queued"
    assert post(gateway, made["acts"], size, form)[0] == 303
    assert app.get(job).status == "cancelled"


def test_clients_that_send_slowly_keep_nobody_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CLIENTS_MAX", 3)
    site = serve("asgi")
    place = "127.0.0.1", httpx.URL(site.url).port
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(place, 60)) for _ in range(3)]
        for client in slow:
            client.sendall(b"GET /")
        assert site.get("/jobs").status_code == 200
        with suppress(ConnectionResetError):
            assert slow[0].recv(1) == b""


def test_the_file_of_others_is_as_they_released_it() -> None:
    """htmx 4.0.1, `dist/htmx.min.js` of its package."""
    body = (files("rota.dashboard") / "static" / "htmx.min.js").read_bytes()
    assert hashlib.sha256(body).hexdigest() == HTMX


HTMX = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"


def test_the_verbs_are_those_of_the_forms(app: rota.App, serve: Serve) -> None:
    from rota.dashboard.pages import POSTS

    written = {
        verb for pattern, _ in POSTS for verb in re.findall(r"[a-z]+", pattern.split("/")[-1])
    }
    assert written - {"P", "verb", "again"} == VERBS


@pytest.mark.nightly
@rule("M44", "M87")
def test_a_dead_job_is_retried_with_arguments_that_its_type_takes(
    app: rota.App, serve: Serve
) -> None:
    jobs = fill(app)
    site = serve()
    path = f"/jobs/{jobs['dead']}"
    assert "Retry with other arguments" in site.get(path).text
    for payload, said in (
        ("{", "is no JSON"),
        ("[" * 20_000, "is no JSON"),
        ("[1]", "must be an object"),
        ('{"user_id": "x", "name": "Ada"}', "user_id"),
    ):
        refused = site.post(path + "/retry", payload=payload, why="typo")
        assert refused.status_code == 400 and said in refused.text, refused.text
        assert f">{payload}</textarea>" in unescape(refused.text)  # nobody types it twice
        assert 'name="why" value="typo"' in refused.text
    assert app.get(jobs["dead"]).resolution is None
    done = site.post(path + "/retry", payload='{"user_id": 2, "name": "Ada"}', why="typo")
    assert done.status_code == 303
    assert app.drain().succeeded == 1
    made = done.headers["location"].rpartition("/")[2]
    assert app.get(int(made)).result == "Ada"
    assert "Retry with other arguments" not in site.get(path).text


@rule("M52", "M63", "M87")
def test_an_uncertain_effect_and_an_open_breaker_are_settled_by_the_forms_of_their_pages(
    app: rota.App, serve: Serve
) -> None:
    @app.job(max_attempts=2, breaker=rota.Breaker("crm"), takes_context=True)
    def charge(ctx: rota.Context) -> None:
        with ctx.effect("charge:1"):
            raise ValueError("no answer")

    app.sync()
    job = charge.enqueue()
    app.drain()
    app.breakers.trip("crm", why="they asked")
    site = serve()
    for path, label in (("/effects", "It has happened"), ("/breakers", "Reset")):
        text = site.get(path).text
        [form] = [tag for tag in re.findall("<form.*?</form>", text, re.S) if f">{label}<" in tag]
        action = unescape(re.findall('action="([^"]+)"', form)[0]).removeprefix(PREFIX)
        fields = dict(re.findall('type="hidden" name="([^"]+)" value="([^"]*)"', form))
        assert site.post(action, **fields, why="asked them").status_code == 303
    assert app.effects.find("charge:1")[0].status == "done"
    assert app.effects.find(job=job.id)[0].key == "charge:1"
    assert [breaker for breaker in app.breakers.list() if breaker.state != "closed"] == []
    assert "<form" not in site.get("/effects").text + site.get("/breakers").text


def send(site: Site, text: str, label: str, **more: Any) -> httpx.Response:
    """Send the form of a page that has a button with this label."""
    [form] = [tag for tag in re.findall("<form.*?</form>", text, re.S) if f">{label}" in tag]
    [action] = re.findall(rf'formaction="([^"]+)">{label}', form) or re.findall(
        r'\baction="([^"]+)"', form
    )
    fields = {
        unescape(name): unescape(value)
        for name, value in re.findall('type="hidden" name="([^"]+)" value="([^"]*)"', form)
    }
    path = unescape(action).removeprefix(PREFIX)
    if 'method="get"' in form:
        return site.get(path, params=fields | more)
    return site.post(path, **fields, **more)


@pytest.mark.nightly
@rule("M44", "M85", "M87")
def test_the_dead_jobs_of_an_error_are_retried_in_portions_that_one_can_stop(
    app: rota.App, serve: Serve, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.ops.ACTION_MAX", 2)
    greet = app.types["greet"]
    app.enqueue_many([greet.new(number, "dies") for number in range(5)])

    @app.job("other", max_attempts=1)
    def other() -> None:
        raise KeyError("other")

    app.sync()
    other.enqueue()
    app.drain()
    site = serve()
    errors = site.get("/errors").text
    [link] = re.findall(r'href="([^"]+)">5</a>', errors)
    dead = site.get(unescape(link).removeprefix(PREFIX)).text
    assert len(re.findall('name="job"', dead)) == 5
    asked = send(site, dead, "Retry…")
    assert (
        "Retry 5 jobs?" in asked.text and len(re.findall('href="[^"]*/jobs/[0-9]', asked.text)) == 5
    )
    assert send(site, asked.text, "Retry 5").status_code == 400  # without a reason
    assert connection.execute("select count(*) from rota.job where status = 'dead'").fetchone() == (
        6,
    )
    first = send(site, asked.text, "Retry 5", why="they are awake")
    assert "2 of 5 jobs done" in first.text and "hx-trigger" in first.text
    reloaded = site.client.get(str(first.url)).text
    assert "Retry 3 jobs?" in reloaded and "hx-trigger" not in reloaded
    queued = "select count(*) from rota.job where status = 'queued' and job_type = 'greet'"
    assert connection.execute(queued).fetchone() == (2,)  # who does not go on has stopped
    app.drain()  # these are dead again, with higher ids: they are not taken once more
    second = send(site, first.text, "Continue")
    third = send(site, second.text, "Continue")
    assert "5 of 5 jobs done" in third.text and "Continue" not in third.text
    assert connection.execute(queued).fetchone() == (3,)
    assert {(entry.by, entry.why) for entry in app.jobs.log()} == {("ann", "they are awake")}


@pytest.mark.nightly
@rule("M87")
def test_an_action_on_many_says_which_it_could_not_do_and_goes_on_behind_them(
    app: rota.App, serve: Serve, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.ops.ACTION_MAX", 1)
    jobs = fill(app)
    other = app.types["greet"].using(delay="1h").enqueue(5, "x").id
    site = serve()
    listed = site.get("/jobs?status=queued").text
    asked = send(site, listed, "Cancel…").text
    assert "Cancel 2 jobs?" in asked
    connection.execute(
        "create function no() returns trigger language plpgsql as "
        "$$ begin raise exception 'not this one'; end $$"
    )
    connection.execute(
        "create trigger no before delete or update on rota.job for each row "
        f"when (old.id = {jobs['queued']}) execute function no()"
    )
    first = send(site, asked, "Cancel 2", why="x").text
    assert "0 done, 1 refused, of 2" in first and "not this one" in first
    done = send(site, first, "Continue").text
    assert "1 done, 1 refused, of 2" in done and "Continue" not in done
    assert app.get(other).status == "cancelled"
    chosen = site.post("/jobs/cancel", job=[jobs["queued"]], why="x")
    assert chosen.status_code == 303 and "not this one" in site.get("/").text
    for path in ("/many/cancel", "/many/retry?status=queued&job_type=none", "/many/retry?since=x"):
        assert site.get(path).status_code == 400
    assert site.post("/many/cancel", why="x", until="x", status="queued").status_code == 400
    looks = serve(authorize=lambda scope: Access("bo", frozenset()))
    assert "…</button>" not in looks.get("/jobs?status=queued").text
    assert looks.post("/many/cancel", why="x", until="99", status="queued").status_code == 403


@rule("M87")
def test_limits_are_set_by_the_forms_of_their_pages(app: rota.App, serve: Serve) -> None:
    @app.job("call", rate_limit=rota.RateLimit("crm", 10, per="1m"))
    def call() -> None:
        pass

    app.sync()
    site = serve()
    done = send(site, site.get("/limits").text, "Change", limit="crm", starts="5", why="they asked")
    assert done.status_code == 303 and "5 starts in 1 min" in site.get("/limits").text
    [limit] = app.limits.list()
    assert (limit.starts, limit.changed_by, limit.changed_why) == (5, "ann", "they asked")
    queues = site.get("/queues").text
    mistyped = send(site, queues, "Pause", queue="defalt", why="x")
    assert mistyped.status_code == 400 and "did you mean" in mistyped.text
    for text, most in (("3", 3), ("", None)):
        send(site, queues, "Limit", queue="mail", max_running=text, force="1", why="x")
        assert [limit.max_running for limit in app.queues.concurrency_limits()] == (
            [most] if most else []
        )
    for wrong in ("0", "-1", "x", "٣"):
        assert (
            send(site, queues, "Limit", queue="mail", max_running=wrong, why="x").status_code == 400
        )


@rule("M44", "M87")
def test_a_finished_job_is_run_again_and_a_job_has_the_actions_of_its_status(
    app: rota.App, serve: Serve
) -> None:
    jobs = fill(app)
    site = serve()
    page = {name: site.get(f"/jobs/{id_}").text for name, id_ in jobs.items()}
    offered = {
        name: re.findall(
            r"<button[^>]*>(\w+)", text.partition("<main")[2].partition("What it is")[0]
        )
        for name, text in page.items()
    }
    assert offered["queued"] == ["Retry", "Cancel", "Discard"]
    assert offered["dead"] == ["Retry", "Archive"]
    assert offered["succeeded"] == offered["cancelled"] == ["Run"]
    done = send(site, page["succeeded"], "Run again", why="lost")
    made = int(re.findall(r"/jobs/(\d+)", done.headers["location"])[0])
    assert app.get(made).status == "queued" and app.get(made).origin_id == made


@rule("M85")
def test_doctor_is_asked_twice_a_minute_however_many_look(
    app: rota.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    now = [1_000.0]

    def examine(*_: Any, **__: Any) -> Any:
        asked.append(now[0])
        return SimpleNamespace(at=lambda level: [])

    monkeypatch.setattr("rota.dashboard.kept.time.monotonic", lambda: now[0])
    monkeypatch.setattr(kept, "examine", examine)
    memory = kept.Memory(app)
    for _ in range(3):
        memory.find_checks()
    now[0] += kept.KEPT_S
    memory.find_checks()
    assert asked == [1_000.0, 1_000.0 + kept.KEPT_S]
    made = dashboard(app, authorize=lambda _: Access("ann"))
    made.warm()
    asking: Any = made.admit(Request("GET", "", "/", {}, {}, None, {}))
    assert made.answer(asking, None).status == 200
    assert len(asked) == 3, "the first page has what was asked ahead"


@rule("M87")
@pytest.mark.parametrize(
    ("origin", "own", "others"),
    [
        ("http://jobs.example", "jobs.example jobs.example:80", "jobs.example:81 jobs.example:x"),
        # What a proxy that ends TLS speaks itself is HTTP.
        ("https://jobs.example", "Jobs.example:443 jobs.example:80", "a.example evil.example:443"),
        ("http://jobs.example:81", "jobs.example:81", "jobs.example jobs.example:80"),
        ("http://[::1]", "[::1]:80", "[::2]:80 :80"),
        ("http://", "", ":80"),
        ("null", "", "null"),
    ],
)
def test_the_port_of_a_scheme_is_no_difference_between_origin_and_host(
    origin: str, own: str, others: str
) -> None:
    for host in own.split():
        assert is_from_here({"origin": origin, "host": host})
        assert not is_from_here({"origin": origin, "host": host, "sec-fetch-site": "cross-site"})
    for host in ("", *others.split()):
        assert not is_from_here({"origin": origin, "host": host})


@rule("M85", "M87")
def test_a_job_is_enqueued_by_a_form_that_its_type_checks(app: rota.App, serve: Serve) -> None:
    @app.job
    def report(
        year: int, note: str, form: Literal["csv", "xlsx"] = "csv", tags: list[str] | None = None
    ) -> None: ...

    app.sync()
    site = serve()
    assert f'href="{PREFIX}/types/report/enqueue"' in site.get("/enqueue").text
    typed = {"of.year": "this", "of.note": "4711", "of.form": "", "of.tags": '["a"]'}
    refused = site.post("/types/report/enqueue", why="asked by mail", **typed)
    assert refused.status_code == 400
    assert "year must be JSON" in refused.text and "&#34;a&#34;" in refused.text
    done = site.post("/types/report/enqueue", why="asked by mail", **(typed | {"of.year": "2026"}))
    assert done.status_code == 303, done.text
    [job] = app.find(job_type="report")
    assert job.payload == {"year": 2026, "note": "4711", "tags": ["a"]}
    [entry] = app.jobs.log(verb="enqueue")
    assert (entry.job, entry.by, entry.why) == (job.id, "ann", "asked by mail")
    looks = serve(authorize=lambda _: Access("bo", VERBS - {"enqueue"}))
    assert looks.get("/types/report/enqueue").status_code == 403
    assert looks.post("/types/report/enqueue", why="x", **typed).status_code == 403


@rule("M87")
def test_the_log_has_a_line_for_each_act_and_is_asked_by_person_and_job(
    app: rota.App, serve: Serve
) -> None:
    greet = app.types["greet"].using(delay="1h")
    ids = [greet.enqueue(user_id, "x").id for user_id in (4, 5, 6)]
    app.jobs.cancel_many(ids=ids[:2], by="ann", why="a test")
    app.cancel(ids[2], by="bo", why="a test")
    site = serve()
    assert (
        "2 jobs" in site.get("/log?by=ann").text and "<td>bo<" not in site.get("/log?by=ann").text
    )
    assert f"job {ids[2]}" in site.get(f"/log?job={ids[2]}").text
    assert "No action matches" in site.get("/log?by=eve").text
