"""The overview: what needs somebody now, and whether jobs are on their way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.cli.errors import ERRORS
from rota.cli.frame import list_waits
from rota.cli.overview import find_types
from rota.cli.schedules import SCHEDULES, name_state
from rota.cli.top import LIMITS as TOP_LIMITS
from rota.dashboard.charts import Bar
from rota.dashboard.look import Look
from rota.dashboard.request import Response
from rota.records import Figures

HOURS = 24
ERRORS_SHOWN = 10
TROUBLE = ("failing", "overdue", "paused")


def show_overview(look: Look) -> Response:
    """What needs somebody now, then errors, queues, running jobs and workers."""
    stats = look.opened.queues.stats(hours=HOURS)
    top = look.opened.read_top(dict(TOP_LIMITS))
    schedules = [
        schedule for schedule in look.opened.schedules.list() if name_state(schedule) in TROUBLE
    ]
    is_new = not (stats.types or any(stats.jobs.values()) or look.opened.find(limit=1))
    errors = look.memory.errors.get(lambda: look.opened.jobs.errors(limit=ERRORS_SHOWN))
    return look.show(
        "overview.html", "Overview",
        {
            "checks": look.memory.find_checks(),
            "alerts": [alert for alert in look.opened.alerts.list() if alert.over_at is None],
            "schedules": schedules,
            "errors": errors,
            "top": top,
            "stats": stats,
        },
        queues=list_queues(top), waits=list_waits(top["waits"]),
        bars=list_bars(stats.hours, HOURS, look.opened.read_clock()),
        SCHEDULES=SCHEDULES, ERRORS=ERRORS,
        guide=_guide(look, top) if is_new else None,
    )  # fmt: skip


def list_queues(top: dict[str, Any]) -> list[dict[str, Any]]:
    """Return queues with due, future or running jobs or a pause; the longest wait comes first."""
    queues: dict[str, dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys(("due", "later", "running", "waiting_s", "is_more", "is_paused"), 0)
    )
    for row in top["queues"]:
        queue = queues[row["queue"]]
        queue["due"] += row["due"]
        queue["later"] += row["later"]
        queue["is_more"] |= max(row["due"], row["later"]) >= top["counted_to"]
        queue["waiting_s"] = max(queue["waiting_s"], row["oldest_due_s"] or 0)
    for name, jobs in top["running_by_queue"].items():
        queues[name]["running"] = jobs
    for name in top["paused"]:
        queues[name]["is_paused"] = True
    listed = [{"queue": name, **facts} for name, facts in queues.items()]
    return sorted(listed, key=lambda facts: (-facts["waiting_s"], facts["queue"]))


def list_bars(figures: list[Figures], hours: int, now: datetime) -> list[Bar]:
    """Return how many jobs ended in each hour, the latest last: succeeded, retried, dead."""
    ended: dict[datetime, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for hourly in figures:
        if hourly.hour is not None:
            for place, count in enumerate((hourly.succeeded, hourly.retried, hourly.dead)):
                ended[hourly.hour.astimezone(UTC)][place] += count
    return [Bar(label, ended[hour]) for hour, label in _list_hours(hours, now)]


def list_times(figures: list[Figures], hours: int, now: datetime) -> list[Bar]:
    """Return the p95 of what the jobs of one type waited and ran, at the places of list_bars."""
    took = {
        hourly.hour.astimezone(UTC): (hourly.waited_p95_s, hourly.ran_p95_s)
        for hourly in figures
        if hourly.hour is not None
    }
    return [Bar(label, took.get(hour, (None, None))) for hour, label in _list_hours(hours, now)]


def _list_hours(hours: int, now: datetime) -> Iterator[tuple[datetime, str]]:
    """Yield the last hours with their labels, the latest last."""
    last = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for back in reversed(range(hours)):
        hour = last - timedelta(hours=back)
        yield hour, f"{hour:%Y-%m-%d %H:00} UTC"


def _guide(look: Look, top: dict[str, Any]) -> list[tuple[bool, str, str]]:
    """Return the steps to the first job: whether it is done, what it is, and how."""
    types = find_types(look.opened)
    is_alive = any(worker["is_alive"] for worker in top["workers"])
    return [
        (bool(types), "Declare a job type", DECLARE),
        (is_alive, "Start a worker", "rota work --app shop:app"),
        (False, "Enqueue a job", ENQUEUE),
    ]


DECLARE = """\
app = rota.App()

@app.job
def greet(name: str) -> None:
    print(f"Hello {name}")"""
ENQUEUE = """greet.enqueue("Ann")"""
