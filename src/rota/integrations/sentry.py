"""Errors, queues and crons in Sentry.

    import sentry_sdk
    from rota.integrations import sentry

    sentry_sdk.init(dsn="…", traces_sample_rate=0.1)
    sentry.instrument(app)

docs/operate/tracing.md says what is sent, and when.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakKeyDictionary

from rota import events, logs
from rota.errors import ConfigurationError, UsageError
from rota.model.outcome import Outcome

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.utils import event_from_exception
except ImportError:
    raise ConfigurationError("reports need a library: pip install 'rota[sentry]'") from None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import rota
    from rota.app import App
    from rota.declare.schedule import ScheduleOptions
    from rota.model.job import Job
    from rota.records import NewJob

Errors = Literal["final", "attempt"]

KEPT_MAX = 1_000
"""Most reports that wait until the database knows whether their attempt was the last."""
MARGIN_MIN = 5
"""Minutes by which a scheduled run may be late, as in `rota doctor`."""
_HEADERS = ("sentry-trace", "baggage")
_TROUBLE = (
    events.LeaseLost,
    events.OutcomeRefused,
    events.HandlerAbandoned,
    events.UpkeepRefused,
    events.ScheduleRefused,
    events.DatabaseCopied,
    events.AlertFired,
)
"""Events of errors that no attempt raised."""

_reporters: WeakKeyDictionary[App, Reporter] = WeakKeyDictionary()


def instrument(app: App, *, errors: Errors = "final", monitors: bool = True) -> None:
    """Report what an App does to Sentry. Call `sentry_sdk.init` before or after it.

    Args:
        errors: "final" reports an error when the job is dead; "attempt" reports each failed
            attempt. Defaults to "final".
        monitors: whether each schedule declared in code is a monitor of Sentry's crons. Defaults
            to True.

    Raises:
        ConfigurationError: the App is instrumented already.
        UsageError: there is no such `errors`.
    """
    if errors not in ("final", "attempt"):
        raise UsageError(f"errors must be 'final' or 'attempt', not {errors!r}")
    if app in _reporters:
        raise ConfigurationError("the App is instrumented already: call sentry.instrument once")
    reporter = Reporter(app, is_each=errors == "attempt", monitors=monitors)
    app.middleware(report_attempt)
    app.enqueue_middleware(carry_trace)
    _reporters[app] = reporter
    ignore_logger("rota")  # it would report each of these errors a second time, as a text


@contextmanager
def carry_trace(jobs: Sequence[NewJob]) -> Iterator[Mapping[str, str]]:
    """Run an enqueue within a span `queue.publish`, and give its trace to the jobs."""
    names = {job.job_type.name for job in jobs}
    name = names.pop() if len(names) == 1 else "jobs"
    queues = {job.options.queue or job.job_type._declaration.options.queue for job in jobs}
    with sentry_sdk.start_span(op="queue.publish", name=name, origin="auto.queue.rota") as span:
        span.set_data("messaging.system", "rota")
        if len(queues) == 1:
            span.set_data("messaging.destination.name", queues.pop())
        given = zip(_HEADERS, (sentry_sdk.get_traceparent(), sentry_sdk.get_baggage()), strict=True)
        yield {header: value for header, value in given if value}


@contextmanager
def report_attempt(ctx: rota.Context) -> Iterator[None]:
    """Run an attempt as a transaction `queue.process`. A process of `process=True` imports this
    function by name."""
    try:
        reporter = _reporters.get(ctx.app)
    except UsageError:  # its process does not know the App
        reporter = None
    if reporter is None:
        yield
        return
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_tag("rota.job_type", ctx.job.job_type)
        scope.set_context("rota", _describe(ctx.job))
        with _begin(ctx), reporter.watch(ctx.job):
            yield


class Reporter:
    """Decides which reports of an App are sent, once the database has the outcome."""

    def __init__(self, app: App, *, is_each: bool, monitors: bool) -> None:
        self._app = app
        self._is_each = is_each
        self._monitors = monitors
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], tuple[Any, Any, Any]] = OrderedDict()
        """The report, hint and scope of each attempt that raised, by job and claim. Guarded by the
        lock."""
        app.on(events.JobFailed, self._handle_failed)
        app.on(events.JobDead, self._handle_dead)
        for trouble in _TROUBLE:
            app.on(trouble, self._report_trouble)
        for forgets in (events.JobSnoozed, events.JobCancelled, events.JobHandedBack):
            app.on(forgets, self._forget)
        if monitors:
            app.on(events.JobSucceeded, lambda event: self._check_in(event, "ok"))
            app.on(events.JobCancelled, lambda event: self._check_in(event, "error"))

    @contextmanager
    def watch(self, job: Job) -> Iterator[None]:
        """Keep the report of what a handler raises, and report that a scheduled run has begun."""
        if self._monitors and job.attempts == 1 and job.scheduled_for is not None:
            self._send_check_in(job.schedule, job.id, "in_progress")
        try:
            yield
        except Outcome:
            raise
        except Exception as error:
            options = sentry_sdk.get_client().options
            how = {"type": "rota", "handled": False}
            event, hint = event_from_exception(error, client_options=options, mechanism=how)
            _mask(event)
            event["transaction"] = job.job_type
            trace = sentry_sdk.get_current_scope().get_trace_context()
            event.setdefault("contexts", {})["trace"] = trace
            with self._lock:
                self._kept[job.id, job.claims] = event, hint, sentry_sdk.get_isolation_scope()
                while len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
            raise

    def _handle_failed(self, event: events.JobFailed) -> None:
        if self._is_each:
            self._report(event, event.failure, "warning")
        else:
            self._forget(event)

    def _handle_dead(self, event: events.JobDead) -> None:
        self._report(event, event.failure, "error")
        if self._monitors:
            self._check_in(event, "error")

    def _report(self, event: events.JobEvent, failure: Any, level: str) -> None:
        """Send the kept report; if another process raised, make a report from what Rota stores."""
        kept = self._take(event)
        if kept is not None:
            report, hint, scope = kept
            report["level"] = level
            sentry_sdk.capture_event(report, hint=hint, scope=scope)
            return
        with sentry_sdk.new_scope() as scope:
            scope.set_tag("rota.job_type", event.job_type)
            scope.set_context("rota", {"job": event.job, "attempt": event.attempt})
            if failure.stack:
                scope.set_extra("stack", failure.stack)
            raised = {"type": failure.error_type, "value": failure.message}
            sentry_sdk.capture_event(
                {
                    "level": level,  # type: ignore[typeddict-item]
                    "exception": {"values": [raised]},
                    "fingerprint": ["rota", event.job_type, failure.error_type],
                }
            )

    def _report_trouble(self, event: events.Event) -> None:
        with sentry_sdk.new_scope() as scope:
            scope.fingerprint = ["rota", type(event).__name__, getattr(event, "rule", "")]
            level: Any = "warning" if event.level_now < logging.ERROR else "error"
            sentry_sdk.capture_message(logs.scrub(event.text()), level=level)

    def _take(self, event: events.JobEvent) -> tuple[Any, Any, Any] | None:
        with self._lock:
            return self._kept.pop((event.job, event.claim), None)

    def _forget(self, event: events.JobEvent) -> None:
        self._take(event)

    # Crons

    def _check_in(self, event: events.JobEvent, status: str) -> None:
        if event.schedule is not None:
            self._send_check_in(event.schedule, event.job, status)

    def _send_check_in(self, schedule: str | None, job: int, status: str) -> None:
        """Send a check-in of a schedule that code declares. All check-ins of a run have one id,
        whichever worker sends them."""
        declared = self._app._declarations.schedules.get(schedule or "")
        if declared is None or declared.cron is None:
            return
        slug = make_slug(declared.name)
        run = uuid5(NAMESPACE_URL, f"rota:{self._app.schema}:{slug}:{job}").hex
        job_type = self._app._type_of(declared.job_type)
        timeout_s = 300.0 if job_type is None else job_type._declaration.options.timeout_s
        capture_checkin(
            monitor_slug=slug,
            check_in_id=run,
            status=status,
            monitor_config=_configure(declared, timeout_s),
        )


def make_slug(schedule: str) -> str:
    """Return the name of a schedule in the form that Sentry accepts."""
    return re.sub(r"[^a-z0-9_-]+", "-", schedule.lower()).strip("-")[:50] or "schedule"


def _configure(schedule: ScheduleOptions, timeout_s: float) -> Any:
    return {
        "schedule": {"type": "crontab", "value": schedule.cron},
        "timezone": schedule.timezone,
        "checkin_margin": MARGIN_MIN,
        "max_runtime": max(1, round(timeout_s / 60)),
        "failure_issue_threshold": 1,
        "recovery_threshold": 1,
    }


@contextmanager
def _begin(ctx: rota.Context) -> Iterator[None]:
    job = ctx.job
    meta = job.meta or {}
    headers = {name: meta[name] for name in _HEADERS if isinstance(meta.get(name), str)}
    transaction = sentry_sdk.continue_trace(
        headers, op="queue.process", name=job.job_type, source="task", origin="auto.queue.rota"
    )
    with sentry_sdk.start_transaction(transaction) as span:
        span.set_data("messaging.system", "rota")
        span.set_data("messaging.message.id", str(job.id))
        span.set_data("messaging.destination.name", job.queue)
        span.set_data("messaging.message.retry.count", job.attempts - 1)
        if job.started_at is not None:
            late_ms = max(0.0, (job.started_at - job.run_at).total_seconds() * 1000)
            span.set_data("messaging.message.receive.latency", round(late_ms))
        try:
            yield
        except Outcome:
            span.set_status("ok")
            raise
        except BaseException:
            span.set_status("internal_error")
            raise
        span.set_status("ok")


def _describe(job: Job) -> dict[str, Any]:
    return {
        "job": job.id,
        "attempt": job.attempts,
        "queue": job.queue,
        "schedule": job.schedule,
        "enqueued_at": job.created_at.isoformat(),
    }


def _mask(event: Any) -> None:
    """Mask the texts of a report, and drop the variables of frames: they hold the payload."""
    for error in event.get("exception", {}).get("values", ()):
        if isinstance(error.get("value"), str):
            error["value"] = logs.scrub(error["value"])
        for frame in (error.get("stacktrace") or {}).get("frames", ()):
            frame.pop("vars", None)
