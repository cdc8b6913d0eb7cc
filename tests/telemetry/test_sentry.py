"""Errors, queues and crons, with the real SDK and a server that takes its envelopes."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

import rota
from rota import events
from rota.errors import ConfigurationError, UsageError
from rota.integrations import sentry
from rota.model.outcome import Failure
from tests.support import forked
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.web import Web, serving
from tests.worker.table import Connection

Item = tuple[str, dict[str, Any]]
ROOT = Path(__file__).parents[2]
CARD = f"4929-{1234}"
"""Not a literal: a report shows lines of the source."""


class Receiver:
    """A server that takes envelopes, as Sentry does."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.dsn = f"{web.url.partition('/hook')[0]}/1".replace("//", "//key@")

    @property
    def items(self) -> list[Item]:
        """All that came, each with its kind, in order."""
        found: list[Item] = []
        for asked in self.web.asked:
            is_packed = asked.headers.get("content-encoding") == "gzip"
            _, *lines = (gzip.decompress(asked.body) if is_packed else asked.body).split(b"\n")
            for head, item in zip(lines[::2], lines[1::2], strict=False):
                found.append((json.loads(head)["type"], json.loads(item)))
        return found

    def of(self, kind: str) -> list[dict[str, Any]]:
        """What came of one kind, in order."""
        sentry_sdk.flush(10)
        return [item for name, item in self.items if name == kind]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving() as web:
        yield Receiver(web)


@pytest.fixture
def reported(app: rota.App, receiver: Receiver) -> Iterator[rota.App]:
    """The App, with the SDK set up as an application does."""
    sentry_sdk.init(receiver.dsn, traces_sample_rate=1.0, release="shop-1")
    yield app
    sentry_sdk.flush(10)
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@rule("M43")
@pytest.mark.parametrize(
    ("errors", "levels"), [("final", ["error"]), ("attempt", ["warning", "error"])]
)
def test_an_error_is_reported_when_the_job_is_dead_or_for_each_attempt(
    reported: rota.App,
    receiver: Receiver,
    connection: Connection,
    errors: sentry.Errors,
    levels: list[str],
) -> None:
    app = reported
    sentry.instrument(app, errors=errors)

    @app.job("fails", max_attempts=2)
    async def fails(card: rota.Personal[str]) -> None:
        sentry_sdk.set_tag("customer", "a")
        raise ValueError(f"card {card} refused")

    job = fails.enqueue(CARD)
    app.drain()
    connection.execute("update rota.job set run_at = rota.clock()")
    app.drain()
    # On a busy machine the worker also reports a loop that was blocked.
    found = [event for event in receiver.of("event") if "exception" in event]
    assert [event["level"] for event in found] == levels
    last = found[-1]
    [raised] = last["exception"]["values"]
    assert raised["type"] == "ValueError" and "refused" in raised["value"]
    assert raised["mechanism"] == {"type": "rota", "handled": False}
    assert raised["stacktrace"]["frames"][-1]["function"] == "fails"
    assert last["transaction"] == "fails" and last["release"] == "shop-1"
    assert last["tags"] == {"rota.job_type": "fails", "customer": "a"}
    assert last["contexts"]["rota"]["job"] == job.id and last["contexts"]["rota"]["attempt"] == 2
    traces = [sent["contexts"]["trace"]["trace_id"] for sent in receiver.of("transaction")]
    assert last["contexts"]["trace"]["trace_id"] in traces
    assert CARD not in json.dumps(receiver.items)


@rule("M43")
def test_an_attempt_that_will_be_retried_or_that_is_no_failure_is_not_reported(
    reported: rota.App, receiver: Receiver
) -> None:
    app = reported
    sentry.instrument(app)

    @app.job("fails")
    def fails() -> None:
        raise ValueError("no")

    @app.job("put_off")
    def put_off() -> None:
        raise rota.Snooze("1h")

    fails.enqueue()
    put_off.enqueue()
    app.drain()
    assert receiver.of("event") == []
    assert {sent["transaction"] for sent in receiver.of("transaction")} == {"fails", "put_off"}


@pytest.mark.nightly
@rule("M43")
def test_a_job_that_a_crashed_worker_lost_and_trouble_without_an_error_are_reported(
    reported: rota.App, receiver: Receiver
) -> None:
    app = reported
    sentry.instrument(app)
    of: dict[str, Any] = {"job": 1, "job_type": "t", "attempt": 3, "claim": 3, "worker": "w"}
    lost = Failure("LeaseExpired", "its worker is gone", "transient", "lease expired")
    app._bus.emit(events.JobDead(**of, failure=lost))
    app._bus.emit(events.LeaseLost(**of))
    alert: dict[str, Any] = {"rule": "r", "subject": "", "message": "10 dead", "value": 10.0}
    since = datetime.now(UTC)
    app._bus.emit(events.AlertFired(**alert, since=since, severity="warning", repeated=False))
    dead, trouble, fired = receiver.of("event")
    assert dead["exception"]["values"] == [{"type": "LeaseExpired", "value": "its worker is gone"}]
    assert dead["fingerprint"] == ["rota", "t", "LeaseExpired"]
    assert "lease lost by w" in trouble["message"] and trouble["level"] == "error"
    assert fired["fingerprint"] == ["rota", "AlertFired", "r"] and fired["level"] == "warning"


@rule("M12")
def test_a_request_and_its_job_are_one_trace_of_the_queues_page(
    reported: rota.App, receiver: Receiver
) -> None:
    app = reported
    sentry.instrument(app)

    @app.job("mail", queue="post")
    def mail(to: str) -> None: ...

    with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
        job = mail.enqueue("ada@example.org")
    mail.enqueue("nobody asks")
    app.drain(concurrency=1)
    request, ran, other = sorted(
        receiver.of("transaction"), key=lambda sent: sent["start_timestamp"]
    )
    [published] = [span for span in request["spans"] if span["op"] == "queue.publish"]
    assert published["data"]["messaging.destination.name"] == "post"
    about = ran["contexts"]["trace"]
    assert (about["op"], ran["transaction"]) == ("queue.process", "mail")
    assert about["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert about["parent_span_id"] == published["span_id"]
    assert about["data"]["messaging.message.id"] == str(job.id)
    assert about["data"]["messaging.destination.name"] == "post"
    assert about["data"]["messaging.message.retry.count"] == 0
    assert about["data"]["messaging.message.receive.latency"] >= 0
    assert other["transaction"] == "mail"
    assert "ada@example.org" not in json.dumps(receiver.items)


@pytest.mark.nightly
@rule("M82")
def test_a_schedule_is_a_monitor_and_its_retries_are_one_run(
    reported: rota.App, receiver: Receiver, connection: Connection
) -> None:
    app = reported
    sentry.instrument(app)
    works = [False]

    @app.job("report", timeout="20m", max_attempts=2)
    def report() -> None:
        if not works[0]:
            raise OSError("no disk")

    app.schedule("Nightly report!", "30 2 * * *", report.new(), timezone="Europe/Berlin")
    app.sync()

    def run_now() -> None:
        connection.execute(
            "update rota.schedule set next_run_at = clock_timestamp() - interval '1s'"
        )
        connection.execute("update rota.job set run_at = clock_timestamp()")
        app.drain()

    run_now()
    first = receiver.of("check_in")
    assert [check_in["status"] for check_in in first] == ["in_progress"]
    works[0] = True
    connection.execute("update rota.job set run_at = clock_timestamp()")
    app.drain()
    began, ended = receiver.of("check_in")
    assert ended["status"] == "ok" and ended["check_in_id"] == began["check_in_id"]
    assert ended["monitor_slug"] == "nightly-report"
    assert ended["monitor_config"]["schedule"] == {"type": "crontab", "value": "30 2 * * *"}
    assert ended["monitor_config"]["timezone"] == "Europe/Berlin"
    assert ended["monitor_config"]["max_runtime"] == 20

    works[0] = False
    run_now()
    run_now()
    last = [sent for sent in receiver.of("check_in") if sent["check_in_id"] != began["check_in_id"]]
    assert last[-1]["status"] == "error"


@rule("M82")
def test_a_job_without_a_schedule_and_an_app_without_monitors_check_in_nowhere(
    reported: rota.App, receiver: Receiver
) -> None:
    app = reported
    sentry.instrument(app, monitors=False)
    app.job("a")(lambda: None)
    app.schedule("s", "0 2 * * *", app.types["a"].new())
    app.sync()
    app.types["a"].enqueue()
    app.schedules.trigger("s")
    app.drain()
    assert receiver.of("check_in") == []


@pytest.mark.nightly
@pytest.mark.system
@rule("M43", "M12")
def test_an_error_of_a_process_of_its_own_is_reported_by_the_worker_in_the_trace_of_its_enqueue(
    database: str, receiver: Receiver, tmp_path: Path
) -> None:
    spans = tmp_path / "spans"
    line = CommandLine(ROOT, ROTA_DATABASE_URL=database, SENTRY=receiver.dsn, SPANS=str(spans))
    forked.run(
        ["-c", "from tests.telemetry.traced_app import apart; apart.enqueue(7)"],
        env=os.environ | line.environment,
        cwd=ROOT,
    )
    line.ok("work", "--drain", "--app", "tests.telemetry.traced_app:app")
    [event] = receiver.of("event")
    [raised] = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("ValueError", "in its own process")
    assert "traced_app" in event["extra"]["stack"]
    sent, ran = [json.loads(line) for line in spans.read_text().splitlines()]
    assert (sent["name"], ran["name"]) == ("enqueue apart", "run apart")
    assert ran["parent_id"] == sent["context"]["span_id"]
    assert ran["attributes"]["error.type"] == "ValueError"


@rule("M3")
def test_what_cannot_be_is_refused(app: rota.App) -> None:
    with pytest.raises(UsageError, match="'final' or 'attempt'"):
        sentry.instrument(app, errors="some")  # type: ignore[arg-type]
    sentry.instrument(app)
    with pytest.raises(ConfigurationError, match="instrumented already"):
        sentry.instrument(app)
