"""Traces from a request to its jobs, for OpenTelemetry.

    from rota.integrations import otel

    otel.instrument(app)

An enqueue is a span, and so is each attempt: docs/operate/tracing.md says which is whose child.
Nothing of a payload is in them.
"""

from __future__ import annotations

import threading
import traceback
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rota import logs
from rota.errors import ConfigurationError, UsageError
from rota.model.outcome import Outcome
from rota.model.units import Duration, seconds
from rota.observe.events import JobEvent

try:
    from opentelemetry import trace
    from opentelemetry.context import Context as TraceContext
    from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise ConfigurationError("traces need a library: pip install 'rota[otel]'") from None

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.trace import Span, SpanContext, TracerProvider

    import rota
    from rota.app import App
    from rota.model.job import Job
    from rota.records import NewJob

LINKS_MAX = 128
"""Most links of a span: the jobs of one call may come from as many requests."""
MESSAGE_MAX = 500
KEPT_MAX = 10_000
"""Most attempts whose trace is kept for the log lines about their ends."""

_W3C = TraceContextTextMapPropagator()
_tracings: WeakKeyDictionary[App, Tracing] = WeakKeyDictionary()
_traces: OrderedDict[tuple[int, int], dict[str, str]] = OrderedDict()
"""The trace of each attempt that began lately, by job and claim."""
_keeping = threading.Lock()


def instrument(
    app: App, *, tracer_provider: TracerProvider | None = None, link_after: Duration = "5m"
) -> None:
    """Trace the enqueues and attempts of an App.

    Args:
        tracer_provider: makes the spans. Defaults to the global provider, when the first span
            begins.
        link_after: a job that was enqueued longer ago begins a trace of its own, with a link to
            that of the enqueue. Defaults to 5 minutes.

    Raises:
        ConfigurationError: the App is instrumented already.
        UsageError: `link_after` is no duration.
    """
    if app in _tracings:
        raise ConfigurationError("the App is instrumented already: call otel.instrument once")
    tracing = Tracing(tracer_provider, seconds(link_after, name="link_after"))
    app.middleware(trace_attempt)
    app.enqueue_middleware(tracing.trace_enqueue)
    _tracings[app] = tracing
    logs._find_trace = find_trace


@contextmanager
def trace_attempt(ctx: rota.Context) -> Iterator[None]:
    """Run an attempt within its span. A process of `process=True` imports this function by name."""
    try:
        tracing = _tracings.get(ctx.app)
    except UsageError:  # its process does not know the App
        tracing = None
    if tracing is None:
        yield
        return
    with tracing.trace_attempt(ctx):
        yield


class Tracing:
    """Makes the spans of an App."""

    def __init__(self, provider: TracerProvider | None, link_after_s: float) -> None:
        self._tracer = trace.get_tracer("rota", tracer_provider=provider)
        self._link_after_s = link_after_s

    @contextmanager
    def trace_enqueue(self, jobs: Sequence[NewJob]) -> Iterator[Mapping[str, str]]:
        """Run an enqueue within its span, and give its trace to the jobs."""
        types = {job.job_type.name for job in jobs}
        queues = {job.options.queue or job.job_type._declaration.options.queue for job in jobs}
        attributes: dict[str, Any] = _describe("enqueue", "send", types, queues)
        if len(jobs) > 1:
            attributes["messaging.batch.message_count"] = len(jobs)
        with self._begin("enqueue", types, SpanKind.PRODUCER, attributes):
            carrier: dict[str, str] = {}
            _W3C.inject(carrier)
            yield carrier

    @contextmanager
    def trace_attempt(self, ctx: rota.Context) -> Iterator[None]:
        """Run an attempt within its span: the child of the enqueue, or a root with a link to it."""
        jobs = [item.job for item in ctx.items]
        origins = [(job, origin) for job in jobs if (origin := _find_origin(job)) is not None]
        attributes = _describe("run", "process", {ctx.job.job_type}, {ctx.job.queue})
        attributes["rota.worker"] = ctx.worker
        if len(jobs) > 1:
            attributes["messaging.batch.message_count"] = len(jobs)
        else:
            attributes |= _describe_job(ctx.job)
        # Nothing of the worker's own context: the process may have been started within a span.
        parent, links = TraceContext(), [Link(origin) for _, origin in origins[:LINKS_MAX]]
        if len(jobs) == 1 and links and self._is_child(ctx.job):
            parent = trace.set_span_in_context(NonRecordingSpan(origins[0][1]), parent)
            links = []
        with self._begin(
            "run", {ctx.job.job_type}, SpanKind.CONSUMER, attributes, parent, links
        ) as span:
            _keep(span, jobs)
            yield

    def _is_child(self, job: Job) -> bool:
        """Whether this is the first attempt, and began soon enough after the enqueue for one
        trace."""
        if job.attempts > 1 or job.origin_id != job.id or job.schedule is not None:
            return False
        assert job.started_at is not None  # when it was claimed
        return (job.started_at - job.created_at).total_seconds() <= self._link_after_s

    @contextmanager
    def _begin(
        self,
        what: str,
        types: set[str],
        kind: SpanKind,
        attributes: dict[str, Any],
        parent: TraceContext | None = None,
        links: Sequence[Link] = (),
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            f"{what} {types.copy().pop()}" if len(types) == 1 else what,
            context=parent,
            kind=kind,
            attributes=attributes,
            links=links,
            record_exception=False,  # with a text that is not masked
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Outcome as outcome:
                span.set_attribute("rota.outcome", type(outcome).__name__)
                raise
            except BaseException as error:
                _record(span, error)
                raise


def find_trace(record: logging.LogRecord) -> dict[str, str]:
    """Return the trace of a log record: of the attempt in an event, or the current trace."""
    event = getattr(record, "rota_event", None)
    if isinstance(event, JobEvent):
        return _traces.get((event.job, event.claim), {})
    return _format(trace.get_current_span().get_span_context())


def _describe(name: str, kind: str, types: set[str], queues: set[str]) -> dict[str, Any]:
    """Return the attributes of the messaging conventions, and the job type if all jobs have it."""
    attributes = {
        "messaging.system": "rota",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if len(queues) == 1:
        attributes["messaging.destination.name"] = queues.copy().pop()
    if len(types) == 1:
        attributes["rota.job.type"] = types.copy().pop()
    return attributes


def _describe_job(job: Job) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.message.id": str(job.id),
        "rota.job.attempt": job.attempts,
        "rota.job.claim": job.claims,
    }
    if job.origin_id != job.id:
        attributes["rota.job.origin"] = job.origin_id
    if job.batch is not None:
        attributes["rota.job.batch"] = job.batch
    if job.schedule is not None:
        attributes["rota.job.schedule"] = job.schedule
    return attributes


def _find_origin(job: Job) -> SpanContext | None:
    # A producer in SQL may write anything.
    meta = {name: text for name, text in (job.meta or {}).items() if isinstance(text, str)}
    context = _W3C.extract(meta, TraceContext())
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def _record(span: Span, error: BaseException) -> None:
    """Record an error on a span, masked as Rota's logs are."""
    name = type(error).__name__
    message = logs.scrub(str(error))[:MESSAGE_MAX]
    stack = logs.scrub("".join(traceback.format_exception(error)))
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, name))
    about = {"exception.type": name, "exception.message": message, "exception.stacktrace": stack}
    span.add_event("exception", about)


def _keep(span: Span, jobs: Sequence[Job]) -> None:
    found = _format(span.get_span_context())
    if found:
        with _keeping:
            for job in jobs:
                _traces[job.id, job.claims] = found
            while len(_traces) > KEPT_MAX:
                _traces.popitem(last=False)


def _format(context: SpanContext) -> dict[str, str]:
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
