"""Alerter as upkeep tells them: in the log, to a URL, and what becomes of the telling when the URL
does not answer."""

from __future__ import annotations

import logging

import pytest

import rota
from rota.errors import ConfigurationError
from rota.observe.events import AlertFired, AlertNotSent, AlertOver, Bus, Event, WorkerStarted
from rota.runtime import http as calls
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep import upkeep_set
from rota.upkeep.alerts import Alerter
from rota.upkeep.pinger import Pinger
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.support.web import Web, serving
from tests.worker.hand import Hand
from tests.worker.table import Connection, put

DEAD = (
    "insert into rota.job (job_type, queue, priority, status, failed_at)"
    " select 't', 'default', 0, 'dead', rota.clock() from generate_series(1, 10)"
)
AGAIN = "update rota.alert_rule set due_at = null"
TRY_AGAIN = "update rota.alert set post_at = null"


class Upkeep:
    """The alerts of one worker, a pass at a time."""

    def __init__(self, database: str, url: str | None = None) -> None:
        self.heard: list[Event] = []
        bus = Bus()
        bus.on(Event, self.heard.append)
        served = Database(database)
        self.shared = StoreLink(served, "upkeep")
        self.service = Alerter(bus, self.shared, served, url)

    async def passes(self) -> list[Event]:
        """Do one pass; what was told in it."""
        self.heard.clear()
        await self.service.tick()
        await self.shared.close()
        return list(self.heard)


@rule("M86", "M84")
async def test_a_firing_is_an_error_in_the_log_and_its_end_an_info(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rota")
    upkeep, other = Upkeep(database), Upkeep(database)
    connection.execute(DEAD)
    [fired] = await upkeep.passes()
    assert isinstance(fired, AlertFired)
    assert (fired.rule, fired.value, fired.severity, fired.repeated) == (
        "dead jobs",
        10,
        "critical",
        False,
    )
    assert await other.passes() == []
    connection.execute(AGAIN)
    assert await other.passes() == []

    connection.execute("delete from rota.job")
    told = []
    for _ in range(3):
        connection.execute(AGAIN)
        told += await other.passes()
    assert [type(event) for event in told] == [AlertOver]
    lines = [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]
    assert lines == [("ERROR", "alert 'dead jobs'"), ("INFO", "alert 'dead jobs' is over")]
    connection.execute(DEAD.replace("10)", "1)"))
    connection.execute(AGAIN)
    [fired] = await other.passes()
    assert isinstance(fired, AlertFired)
    assert (fired.severity, fired.level_now) == ("warning", logging.WARNING)


@rule("M86")
async def test_an_alert_is_posted_once_as_json(database: str, connection: Connection) -> None:
    connection.execute(DEAD)
    with serving() as web:
        upkeep, other = Upkeep(database, web.url), Upkeep(database, web.url)
        await upkeep.passes()
        for again in (upkeep, other):
            connection.execute(AGAIN)
            connection.execute(TRY_AGAIN)
            await again.passes()
    [asked] = web.asked
    assert (asked.method, asked.path) == ("POST", "/hook/the-secret")
    assert {**asked.json, "since": None} == {
        "rule": "dead jobs",
        "subject": "",
        "state": "fires",
        "severity": "critical",
        "since": None,
        "over_at": None,
        "notifications": 1,
        "value": 10.0,
        "message": "10 jobs died within 01:00:00 and wait for a person: t (10)",
    }


def fail(web: Web, how: str) -> str:
    """Have the server fail; the URL to post to."""
    web.dribbles = how == "dribbles"
    web.status = {"says 500": 500, "leads elsewhere": 302}.get(how)
    web.headers = {"Location": web.url} if how == "leads elsewhere" else {}
    return web.url


@rule("M86")
@pytest.mark.parametrize("how", ["says 500", "leads elsewhere", "hangs"])
async def test_an_alert_that_cannot_be_posted_is_said_and_posted_later(
    how: str, database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute(DEAD)
    with serving() as web:
        url = fail(web, how)
        with monkeypatch.context() as patched:
            patched.setattr(calls, "ANSWER_S", 0.3 if how == "hangs" else 60)
            patched.setattr(calls, "CALL_S", 60)
            fired, not_told = await Upkeep(database, url).passes()
        assert isinstance(fired, AlertFired)
        assert isinstance(not_told, AlertNotSent)
        assert "127.0.0.1" in not_told.reason and "secret" not in not_told.text()
        eventually(
            lambda: web.asked,
            what="it was asked, though it may be for later than was waited for an answer",
        )
        assert len(web.asked) == 1, "a redirect is not followed"

        web.status, web.headers = 200, {}
        web.asked.clear()
        connection.execute(TRY_AGAIN)
        assert await Upkeep(database, web.url).passes() == []
        assert [asked.json["state"] for asked in web.asked] == ["fires"]


@rule("M86")
async def test_a_rule_that_cannot_be_evaluated_keeps_no_other_from_it(
    database: str, connection: Connection
) -> None:
    connection.execute("alter table rota.attempt rename to elsewhere")
    connection.execute(DEAD)
    upkeep = Upkeep(database)
    told = await upkeep.passes()
    assert [event.rule for event in told if isinstance(event, AlertFired)] == ["dead jobs"]
    assert sorted(event.rule for event in told if isinstance(event, AlertNotSent)) == [
        "failure rate",
        "same error",
    ]
    assert upkeep.service.passes == 0, "such a pass is no reason to ping"


@rule("M86", "M80")
async def test_a_drain_evaluates_the_rules_before_its_jobs_and_after_the_other_upkeep(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_set, "EACH_S", 60)
    connection.execute(
        "insert into rota.job (job_type, expires_at) select 't', rota.clock() - interval '1 s' "
        "from generate_series(1, 10)"
    )
    connection.execute("update rota.alert_rule set notify_job = 'page' where name = 'dead jobs'")
    jobs, paged = rota.Jobs(), []

    @jobs.job("page")
    def page(rule: str, state: str, message: str) -> None:
        paged.append(f"{rule} {state}: {message}")

    with serving() as web:
        hand = Hand(database, jobs, drain=True, alert_url=web.url)
        await hand.run()
        await Hand(database, jobs, drain=True, alert_url=web.url).run()
    told = [type(event) for event in hand.events if isinstance(event, AlertFired | WorkerStarted)]
    assert told == [AlertFired, WorkerStarted]
    assert paged == ["dead jobs fires: 10 jobs died within 01:00:00 and wait for a person: t (10)"]
    assert [asked.json["state"] for asked in web.asked] == ["fires"]


def test_a_url_that_cannot_be_called_is_refused_without_showing_it(database: str) -> None:
    for url in (
        "ftp://example.com/x",
        "https:///the-path",
        "not a url",
        "https://user:word@example.com/",
        "http://example.com/a b",
        "http://h:0",
    ):
        for options, ping in (({"alert_url": url}, None), ({}, url)):
            app = rota.App(database, **options)  # type: ignore[arg-type]
            app.job("quick")(lambda: None)
            with pytest.raises(ConfigurationError) as refused:
                app.drain(ping=ping)
            assert url not in str(refused.value)


# The dead-man switch


@rule("M86", "M80")
def test_a_drain_pings_when_all_went_well(app: rota.App, connection: Connection) -> None:
    app.job("quick")(lambda: None)
    put(connection, "quick")
    with serving() as web:
        assert app.drain(ping=web.url).succeeded == 1
    assert [(asked.method, asked.path) for asked in web.asked] == [("GET", "/hook/the-secret")]


@rule("M86", "M80")
def test_a_drain_that_found_no_database_does_not_ping() -> None:
    app = rota.App("postgresql://127.0.0.1:9/none?connect_timeout=2")
    app.job("quick")(lambda: None)
    with serving() as web, pytest.raises(rota.DatabaseUnavailable):
        app.drain(ping=web.url)
    assert web.asked == []


@rule("M86", "M80")
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("says 500", "answered 500"),
        ("hangs", "did not answer within 0.3 s"),
        ("dribbles", "did not answer within 0.7 s"),
    ],
)
def test_a_ping_that_fails_is_a_warning_and_fails_nothing(
    how: str,
    says: str,
    app: rota.App,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "ANSWER_S", 0.3 if how == "hangs" else 60)
    monkeypatch.setattr(calls, "CALL_S", 0.7 if how == "dribbles" else 60)
    app.job("quick")(lambda: None)
    with serving() as web:
        url = fail(web, how)
        assert app.drain(ping=url).dead == 0
        calls.ping(url)  # as the parent of several processes does
    lines = [record for record in caplog.records if "ping" in record.getMessage()]
    assert [line.levelname for line in lines] == ["WARNING", "WARNING"]
    assert (
        all(f"127.0.0.1 {says}; the work itself succeeded" in line.getMessage() for line in lines)
        and "secret" not in caplog.text
    )


@rule("M86", "M81")
async def test_a_worker_that_stays_pings_after_a_good_pass_and_then_waits_for_the_next(
    database: str, jobs: rota.Jobs
) -> None:
    with serving() as web:
        async with Hand(database, jobs, ping_url=web.url):
            await aeventually(lambda: web.asked)
    assert len(web.asked) == 1


@rule("M86")
async def test_a_worker_does_not_ping_while_the_database_does_not_answer_one_of_its_parts(
    database: str,
) -> None:
    upkeep, part = Upkeep(database), Upkeep(database).service
    good: list[int] = []
    with serving() as web:
        pinger = Pinger(
            Bus(), upkeep.service, [upkeep.service, part], web.url, lambda: good.append(1)
        )
        await pinger.tick()
        assert web.asked == [], "no pass was done yet"

        part.away_since = 1.0
        await upkeep.passes()
        await pinger.tick()
        assert web.asked == []

        part.away_since = None
        await pinger.tick()
        await pinger.tick()
        assert len(web.asked) == len(good) == 1

        web.status = 500
        for _ in range(2):  # one that failed is no reason to leave the next out
            await upkeep.passes()
            await pinger.tick()
        assert len(web.asked) == len(good) == 3
