"""Traces, with the real SDK and its exporters."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import rota
from rota import logs
from rota.errors import ConfigurationError, UsageError
from rota.integrations import otel
from tests.support.rules import rule
from tests.worker.table import Connection


@dataclass
class Item:
    """A job of a call of many."""

    id: int


class Traced:
    """An App with a provider that keeps its spans."""

    def __init__(self, app: rota.App, **options: Any) -> None:
        self.app = app
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        otel.instrument(app, tracer_provider=self.provider, **options)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """The spans that have ended, in their order."""
        found = self.exporter.get_finished_spans()
        return [span for span in found if name is None or span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [span] = self.spans(name)
        return span


@pytest.fixture
def traced(app: rota.App) -> Traced:
    return Traced(app)


@pytest.fixture(autouse=True)
def own_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log lines of other tests have no traces."""
    monkeypatch.setattr(logs, "_find_trace", logs._find_trace)


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


@rule("M12")
def test_a_request_its_enqueue_and_the_first_attempt_are_one_trace(traced: Traced) -> None:
    app = traced.app

    @app.job("mail", queue="post")
    def mail(to: str) -> None:
        second.enqueue("x")

    @app.job("second")
    async def second(text: str) -> None: ...

    tracer = traced.provider.get_tracer("shop")
    with tracer.start_as_current_span("POST /orders") as request:
        job = mail.enqueue("ada@example.org")
    app.drain()
    sent, ran = traced.span("enqueue mail"), traced.span("run mail")
    trace_id = request.get_span_context().trace_id
    assert {ids(span)[0] for span in traced.spans()} == {trace_id}
    assert parent(sent) == request.get_span_context().span_id
    assert parent(ran) == ids(sent)[1]
    assert parent(traced.span("enqueue second")) == ids(ran)[1]
    assert parent(traced.span("run second")) == ids(traced.span("enqueue second"))[1]
    assert (sent.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(sent.attributes or {}) == {
        "messaging.system": "rota",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "post",
        "rota.job.type": "mail",
    }
    attributes = dict(ran.attributes or {})
    assert attributes.pop("rota.worker")
    assert attributes == {
        "messaging.system": "rota",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "post",
        "messaging.message.id": str(job.id),
        "rota.job.type": "mail",
        "rota.job.attempt": 1,
        "rota.job.claim": 1,
    }
    assert ran.status.status_code is StatusCode.UNSET
    assert set(app.get(job.id).meta) == {"traceparent"}


@rule("M40", "M44")
def test_a_retry_and_a_long_wait_are_roots_with_a_link_to_the_enqueue_and_so_is_a_requeued_job(
    traced: Traced, connection: Connection
) -> None:
    app = traced.app

    @app.job("shaky", max_attempts=2)
    def shaky() -> None:
        raise OSError("the line is down")

    app.job("late")(lambda: None)
    app.schedule("nightly", "0 2 * * *", app.types["late"].new())
    job = shaky.enqueue()
    app.types["late"].enqueue()
    connection.execute(
        "update rota.job set created_at = created_at - interval '301 s' where job_type = 'late'"
    )
    app.drain()
    connection.execute("update rota.job set run_at = rota.clock()")
    app.drain()
    app.retry(job.id)
    app.schedules.trigger("nightly")
    app.drain()
    first, again, requeued = traced.spans("run shaky")
    late, scheduled = traced.spans("run late")
    sent = traced.span("enqueue shaky")
    assert parent(first) == ids(sent)[1] and not first.links
    of_late = traced.span("enqueue late")
    for root, origin in ((again, sent), (requeued, sent), (late, of_late)):
        assert root.parent is None and ids(root)[0] != ids(origin)[0]
        assert [(link.context.trace_id, link.context.span_id) for link in root.links] == [
            ids(origin)
        ]
    assert (again.attributes or {})["rota.job.attempt"] == 2
    assert (requeued.attributes or {})["rota.job.origin"] == job.id
    assert scheduled.parent is None and not scheduled.links
    assert (scheduled.attributes or {})["rota.job.schedule"] == "nightly"


@rule("M45")
def test_no_span_has_a_payload_and_errors_are_masked(traced: Traced) -> None:
    app = traced.app

    @app.job("pay", max_attempts=1)
    def pay(card: rota.Personal[str], note: str) -> None:
        raise ValueError(f"card {card} refused at postgresql://u:hunter2@db/x")

    @app.job("put_off")
    def put_off(note: str) -> None:
        raise rota.Snooze("1h")

    pay.enqueue("4929-1234", "private words")
    put_off.enqueue("private words")
    app.drain()
    told = "".join(span.to_json() for span in traced.spans())
    for word in ("4929-1234", "private words", "hunter2"):
        assert word not in told, word
    failed = traced.span("run pay")
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "ValueError"
    [event] = failed.events
    assert "refused" in str((event.attributes or {})["exception.message"])
    assert "in pay" in str((event.attributes or {})["exception.stacktrace"])
    snoozed = traced.span("run put_off")
    assert (snoozed.attributes or {})["rota.outcome"] == "Snooze"
    assert snoozed.status.status_code is StatusCode.UNSET


@rule("M21")
def test_many_jobs_of_one_call_have_one_span_and_a_call_of_many_links_to_all(
    traced: Traced,
) -> None:
    app = traced.app

    @app.job("index", chunk=10)
    def index(items: list[Item]) -> None: ...

    @app.job("other", queue="mail")
    def other() -> None: ...

    app.enqueue_many([index.new(Item(n)) for n in range(3)])
    app.enqueue_many([index.new(Item(3)), other.new()])
    app.drain()
    first, mixed = traced.spans("enqueue index")[0], traced.span("enqueue")
    assert (first.attributes or {})["messaging.batch.message_count"] == 3
    assert "messaging.destination.name" not in (mixed.attributes or {})
    run = traced.span("run index")
    assert run.parent is None and (run.attributes or {})["messaging.batch.message_count"] == 4
    assert {link.context.trace_id for link in run.links} == {ids(first)[0], ids(mixed)[0]}
    assert parent(traced.span("run other")) == ids(mixed)[1]


@rule("M12")
def test_a_meta_without_a_trace_is_no_error(traced: Traced, connection: Connection) -> None:
    traced.app.job("given")(lambda: None)
    odd: list[Any] = [None, {"tenant": 7}, {"traceparent": "00-zz-1-01"}, {"tracestate": "a"}]
    for meta in odd:
        connection.execute(
            "insert into rota.job (job_type, meta) values ('given', %s)",
            [None if meta is None else json.dumps(meta)],
        )
    assert traced.app.drain().succeeded == len(odd)
    for run in traced.spans("run given"):
        assert run.parent is None and not run.links
        assert (run.attributes or {})["messaging.message.id"]


@rule("M3")
def test_without_an_sdk_no_job_gets_a_meta(app: rota.App) -> None:
    otel.instrument(app, tracer_provider=trace.NoOpTracerProvider())
    seen: list[Any] = []

    @app.job("a", takes_context=True)
    def a(ctx: rota.Context) -> None:
        seen.append(ctx.job.meta)

    a.enqueue()
    app.drain()
    assert seen == [None]


@rule("M84")
def test_log_lines_of_a_handler_and_of_its_end_have_its_trace(traced: Traced) -> None:
    app = traced.app
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(logs.JobFilter())
    handler.setFormatter(logs.JsonFormatter())
    shop, own = logging.getLogger("shop"), logging.getLogger("rota")

    @app.job("fails", max_attempts=1)
    def fails() -> None:
        shop.warning("looking")
        raise ValueError("no")

    job = fails.enqueue()
    level = own.level
    for logger in (shop, own):
        logger.addHandler(handler)
    own.setLevel(logging.INFO)
    try:
        app.drain()
    finally:
        own.setLevel(level)
        for logger in (shop, own):
            logger.removeHandler(handler)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    [said] = [line for line in lines if line["message"] == "looking"]
    [dead] = [line for line in lines if line.get("event") == "JobDead"]
    trace_id, span_id = ids(traced.span("run fails"))
    for line in (said, dead):
        assert line["trace_id"] == f"{trace_id:032x}" and line["span_id"] == f"{span_id:016x}"
        assert line["job"] == job.id
    [started] = [line for line in lines if line.get("event") == "WorkerStarted"]
    assert "trace_id" not in started


@rule("M3")
def test_what_cannot_be_is_refused(traced: Traced, database: str) -> None:
    with pytest.raises(ConfigurationError, match="instrumented already"):
        otel.instrument(traced.app)
    with pytest.raises(UsageError, match="link_after"):
        otel.instrument(rota.App(database), link_after="soon")
