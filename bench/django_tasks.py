"""Backends of Django's tasks side by side: Rota, django-tasks-db and dj_queue, on one server.

One worker process each, as it is started by default; dj_queue with the ten threads that Rota has,
and both with a crash that is noticed after ten seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from bench.figures import Figure
from bench.scale import Scale
from bench.server import DurableServer, one
from tests.django.project import ROOT, NotThere, Project, make_python

PART = "Django's tasks"
PACKAGES = ("django>=6.1", "django-tasks-db", "dj-queue[postgres]")
WORKERS = {
    "rota": ("rota", "work", "--log-level", "error"),
    "django-tasks-db": ("db_worker", "--queue-name", "*"),
    "dj_queue": ("dj_queue",),
}
"""The commands of manage.py."""
FINISHED = {
    "rota": "rota.job_history",
    "django-tasks-db": "django_tasks_database_dbtaskresult",
    "dj_queue": "dj_queue_jobs",
}
"""Where a finished task is, with a time in `finished_at`."""
TASKS = 2_000
KILLED = 5
DRAIN_S = 180
"""For the slowest on a busy machine."""


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Measure each backend in a database of its own."""
    try:
        python = make_python(place / "django6", *PACKAGES)
    except NotThere as why:
        raise RuntimeError(str(why)) from why
    for name in WORKERS:
        with server.database(migrated=False) as url:
            more = {"DJANGO_SETTINGS_MODULE": "bench.django_site.settings", "BACKEND": name}
            yield from _measure_one(name, Project(url, python, more), scale)


def _measure_one(name: str, site: Project, scale: Scale) -> Iterator[Figure]:
    site.run("migrate", "-v", "0")
    per_second = _drive(site, "enqueue", TASKS)
    yield _figure(name, "enqueued in a transaction with a row", per_second, "tasks/s")
    yield _figure(name, "drained", _drain(name, site), "tasks/s")
    with _worker(name, site):
        time.sleep(3)
        waits = _drive(site, "wait", scale.sparse_jobs * 2)
    yield _figure(name, "from the commit to the start, median", median(waits), "ms")
    with _worker(name, site) as process:
        ids = _drive(site, "begin", KILLED)
        os.killpg(process.pid, signal.SIGKILL)
    with _worker(name, site):
        told = _drive(site, "watch", *ids)
    statuses = ", ".join(f"{count} {status}" for status, count in told["statuses"].items())
    note = f"{KILLED} running tasks: {statuses} after {told['took_s']:.0f} s"
    done = told["statuses"].get("SUCCESSFUL", 0)
    yield _figure(name, "done after kill -9 of their worker", done, "tasks", note)


def _drain(name: str, site: Project) -> float:
    """Return how many tasks a second a worker finishes, from the first that it has finished on."""
    with psycopg.connect(site.url, autocommit=True) as connection, _worker(name, site):
        first, began, until = 0, 0.0, time.monotonic() + DRAIN_S
        finished = f"select count(finished_at) from {FINISHED[name]}"
        while (count := int(one(connection, finished))) < TASKS:
            if count and not first:
                first, began = count, time.perf_counter()
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        return (count - first) / (time.perf_counter() - began)


def _drive(site: Project, *arguments: object) -> Any:
    texts = [str(one) for one in arguments]
    return json.loads(site.run_module("bench.django_site.drive", *texts).splitlines()[-1])


@contextmanager
def _worker(name: str, site: Project) -> Iterator[subprocess.Popen[bytes]]:
    """Start the worker of a backend; end it as an operator does, then surely."""
    with subprocess.Popen(
        [site.python, "-m", "django", *WORKERS[name]],
        env=site.environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
            process.terminate()
            process.wait(30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _figure(name: str, what: str, value: float, unit: str, note: str = "") -> Figure:
    return Figure(part=PART, name=f"{what}, {name}", value=value, unit=unit, note=note)
