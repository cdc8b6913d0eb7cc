"""Gauges of the database: their names, and their text as Prometheus reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rota.model.record import Record

GAUGES: dict[str, tuple[str | None, str]] = {
    "rota_due_jobs": ("queue", "Jobs that are due, up to 10,000 of each priority."),
    "rota_oldest_due_job_seconds": ("queue", "How long the oldest due job has waited."),
    "rota_running_jobs": ("queue", "Jobs that workers hold."),
    "rota_dead_jobs": (None, "Dead jobs that wait for a person, up to 10,000."),
    "rota_blocked_jobs": (
        "reason",
        "Jobs that something else than a free slot keeps from running.",
    ),
    "rota_overdue_schedules": (
        None,
        "Schedules that are late by five minutes, or that Rota has paused.",
    ),
    "rota_open_breakers": ("breaker", "Keys of a breaker that are not closed."),
    "rota_workers": ("state", "Workers seen within the hour that have not stopped."),
    "rota_worker_slots": (None, "Most jobs that the workers alive run at once."),
    "rota_table_rows": ("table", "Rows as the server estimates them, with partitions."),
    "rota_table_dead_rows": ("table", "Row versions that wait for vacuum, estimated."),
    "rota_table_bytes": ("table", "Size with indexes, TOAST and partitions."),
    "rota_vacuum_horizon_transactions": (
        "holder",
        "Age of the oldest transaction whose rows vacuum must keep, by what holds it.",
    ),
    "rota_vacuum_horizon_seconds": (
        "holder",
        "The same in time, of sessions and prepared transactions.",
    ),
}
"""The gauges in the order in which they are shown, each with the name of its one label, if it has a
label, and its meaning. `metrics_read.sql` gives their values."""


class Metric(Record, frozen=True):
    """The value of one gauge."""

    name: str
    """Its name, such as `rota_due_jobs`."""
    labels: dict[str, str]
    """What it is about, such as `{"queue": "email"}`; at most one label."""
    value: float
    """How much, in the unit that the name ends with."""


def render_metrics(metrics: Iterable[Metric]) -> str:
    """Return gauges in the text format of Prometheus. Gauges of one name must follow each other."""
    lines: list[str] = []
    for name, some in groupby(metrics, lambda metric: metric.name):
        lines += [f"# HELP {name} {GAUGES[name][1]}", f"# TYPE {name} gauge"]
        for metric in some:
            labels = ",".join(f'{label}="{_escape(text)}"' for label, text in metric.labels.items())
            about = f"{{{labels}}}" if labels else ""
            lines.append(f"{name}{about} {metric.value:.15g}")
    return "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
