"""Metrics for Prometheus: what this process has done, and the gauges of the database.

    from rota.integrations import prometheus

    prometheus.instrument(app)

Then `rota work --health-port 8080` serves `/metrics`. Names and labels: docs/operate/metrics.md.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota import events
from rota.declare.release import VERSION
from rota.errors import ConfigurationError, RotaError
from rota.model.metric import GAUGES
from rota.store import ops
from rota.store.db import Patience

try:
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily
except ImportError:
    raise ConfigurationError("metrics need a library: pip install 'rota[prometheus]'") from None

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

    from rota.app import App
    from rota.model.metric import Metric
    from rota.records import NewJob

DURATIONS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""The buckets of both histograms: from a call on the network to a long report."""
READ_S = 10.0
"""Fewest seconds between two reads of the database's gauges."""
ANSWER_S = 3.0
"""Longest wait of a scrape for these gauges: the process's own counters must not wait longer."""
OTHER = "other"
"""The label of a job type that this App does not have."""

_OUTCOMES: dict[type[events.JobEvent], str] = {
    events.JobSucceeded: "succeeded",
    events.JobFailed: "failed",
    events.JobDead: "dead",
    events.JobCancelled: "cancelled",
    events.JobSnoozed: "snoozed",
    events.JobWaiting: "waiting",
    events.JobHandedBack: "handed_back",
    events.LeaseLost: "lost",
}
_RUNS: dict[type[events.Event], str] = {
    events.RunEnqueued: "enqueued",
    events.RunSkipped: "skipped",
    events.RunsMissed: "missed",
    events.ScheduleRefused: "refused",
}
_PROBLEMS: dict[type[events.Event], str] = {
    events.OutcomeRefused: "outcome_refused",
    events.HandlerAbandoned: "handler_abandoned",
    events.PayloadUnread: "payload_unread",
    events.UpkeepRefused: "maintenance_refused",
    events.DatabaseCopied: "restored_copy",
}


def instrument(app: App, *, registry: CollectorRegistry = REGISTRY, gauges: bool = True) -> None:
    """Measure what an App does in this process, and serve it on the health port of its workers.

    Args:
        registry: where the metrics are, and what `/metrics` shows: metrics of your own too.
            Defaults to the registry of prometheus_client.
        gauges: whether a worker may serve the gauges of the database. One worker of all reads
            them. Defaults to True.

    Raises:
        ConfigurationError: the App is instrumented already, or another App is in this registry.
    """
    if app._metrics is not None:
        raise ConfigurationError("the App is instrumented already: call prometheus.instrument once")
    try:
        counters = Counters(app, registry)
    except ValueError:
        raise ConfigurationError(
            "another App has its metrics in this registry: give each App its own, as in "
            "prometheus.instrument(app, registry=CollectorRegistry())"
        ) from None
    if gauges:
        registry.register(DatabaseGauges(app, counters))
    app._metrics = lambda: generate_latest(registry).decode()


class Counters:
    """The counters and histograms of this process, fed by its events."""

    def __init__(self, app: App, registry: CollectorRegistry) -> None:
        self._app = app
        self._known: dict[str, str] = {}
        own: dict[str, Any] = {"registry": registry}
        timed: dict[str, Any] = {"buckets": DURATIONS_S, **own}
        self.attempts = Counter(
            "rota_attempts", "Attempts that ended in this process.", ["job_type", "outcome"], **own
        )
        self.duration = Histogram(
            "rota_attempt_duration_seconds", "How long handlers ran.", ["job_type"], **timed
        )
        self.delay = Histogram(
            "rota_claim_delay_seconds", "How long claimed jobs had been due.", ["queue"], **timed
        )
        self.recovered = Counter(
            "rota_recovered_jobs", "Jobs of crashed workers, recovered here.", ["job_type"], **own
        )
        self.enqueued = Counter(
            "rota_enqueued_jobs",
            "Jobs that calls enqueued, duplicates and rolled back ones included.",
            ["job_type"],
            **own,
        )
        self.runs = Counter(
            "rota_schedule_runs", "Scheduled times that this process handled.", ["outcome"], **own
        )
        self.openings = Counter(
            "rota_breaker_openings", "Times that a breaker opened.", ["breaker"], **own
        )
        self.outages = Counter(
            "rota_database_outages",
            "Times that a part of the worker did not reach the database.",
            ["service"],
            **own,
        )
        self.blocked = Counter(
            "rota_loop_blocked_seconds", "How long the event loop was blocked.", **own
        )
        self.alerts = Counter(
            "rota_alerts", "Alerts that this process reported first.", ["severity"], **own
        )
        self.problems = Counter(
            "rota_worker_problems", "What kept the worker from its work.", ["problem"], **own
        )
        self.unread = Counter(
            "rota_gauge_failures", "Scrapes that could not read the database's gauges.", **own
        )
        self.worker = Gauge(
            "rota_worker_processes", "Worker processes that run.", ["release", "version"], **own
        )
        self._listen()
        app.enqueue_middleware(self._count_enqueued)

    def _listen(self) -> None:
        on = self._app.on
        for job_event in _OUTCOMES:
            on(job_event, self._count_end)
        for event in _RUNS:
            on(event, self._count_run)
        for event in _PROBLEMS:
            on(event, lambda event: self.problems.labels(_PROBLEMS[type(event)]).inc())
        on(events.JobClaimed, lambda event: self.delay.labels(event.queue).observe(event.waited_s))
        on(events.JobReaped, lambda event: self.recovered.labels(self.name(event.job_type)).inc())
        on(events.BreakerOpened, lambda event: self.openings.labels(event.breaker).inc())
        on(events.DatabaseLost, lambda event: self.outages.labels(event.service).inc())
        on(events.LoopBlocked, lambda event: self.blocked.inc(event.blocked_s * event.over))
        on(events.AlertFired, self._count_alert)
        on(events.WorkerStarted, lambda event: self.worker.labels(event.release, VERSION).inc())
        on(events.WorkerStopped, lambda _: self.worker.clear())

    def name(self, job_type: str) -> str:
        """Return the label of a job type. A row in the table may have any type."""
        found = self._known.get(job_type)
        if found is None:
            if self._app._type_of(job_type) is None:
                return OTHER
            found = self._known[job_type] = job_type
        return found

    def _count_end(self, event: events.JobEvent) -> None:
        name = self.name(event.job_type)
        self.attempts.labels(name, _OUTCOMES[type(event)]).inc()
        ran_s: float | None = getattr(event, "ran_s", None)
        if ran_s is not None:
            self.duration.labels(name).observe(ran_s)

    def _count_run(self, event: events.Event) -> None:
        self.runs.labels(_RUNS[type(event)]).inc(getattr(event, "runs", 1))

    def _count_alert(self, event: events.AlertFired) -> None:
        if not event.repeated:
            self.alerts.labels(event.severity).inc()

    @contextmanager
    def _count_enqueued(self, jobs: Sequence[NewJob]) -> Iterator[None]:
        yield
        for job in jobs:
            self.enqueued.labels(job.job_type.name).inc()


class DatabaseGauges:
    """Collects the database's gauges while a worker runs in this process; one worker of all reads
    them."""

    def __init__(self, app: App, counters: Counters) -> None:
        self._app = app
        self._counters = counters
        self._worker: str | None = None
        """The worker of this process; None: no worker runs."""
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None
        """The lock guards this field and the two below."""
        self._found: list[Metric] = []
        self._read_at = float("-inf")
        app.on(events.WorkerStarted, self._begin)
        app.on(events.WorkerStopped, self._end)

    def describe(self) -> list[Family]:
        """Return nothing: the registry must not read the database to learn the names."""
        return []

    def collect(self) -> Iterable[Family]:
        """Yield the gauges, at most READ_S old."""
        families: dict[str, GaugeMetricFamily] = {}
        for metric in self._read():
            if metric.name not in families:
                label, meaning = GAUGES[metric.name]
                labels = [] if label is None else [label]
                families[metric.name] = GaugeMetricFamily(metric.name, meaning, labels=labels)
            families[metric.name].add_metric([*metric.labels.values()], metric.value)
        return families.values()

    def _begin(self, event: events.WorkerStarted) -> None:
        self._worker = event.worker

    def _end(self, _: events.WorkerStopped) -> None:
        self._worker = None

    def _read(self) -> list[Metric]:
        worker = self._worker
        if worker is None:
            return []
        with self._lock:
            if monotonic() - self._read_at < READ_S:
                return self._found
            if self._reading is None:
                # A database that hangs keeps one thread busy, however many scrapes come.
                self._reading = threading.Thread(
                    target=self._read_now, args=[worker], name="rota-gauges", daemon=True
                )
                self._reading.start()
            reading = self._reading
        reading.join(ANSWER_S)
        if reading.is_alive():
            self._counters.unread.inc()
            return []
        with self._lock:
            return self._found

    def _read_now(self, worker: str) -> None:
        found: list[Metric] = []
        run, patience = self._app._database.run, Patience(answer_s=READ_S)
        try:
            if run(ops.take_metrics(worker), patience=patience):
                found = run(ops.read_metrics(), patience=patience)
        except RotaError:  # the worker's own parts report it
            self._counters.unread.inc()
        finally:
            with self._lock:
                self._found, self._read_at, self._reading = found, monotonic(), None
