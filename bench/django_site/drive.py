"""`python -m bench.django_site.drive VERB COUNT`: enqueues on the site, and prints JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import django
from django.db import transaction

django.setup()

from django.contrib.auth.models import Group  # noqa: E402 - after the setup

from bench.django_site.tasks import noop, stamp, work  # noqa: E402

WAIT_S = 30
WORK_S = 15.0
WATCH_S = 60


def enqueue(count: int) -> float:
    """Insert a row and enqueue a task in a transaction each; return how many a second."""
    began = time.perf_counter()
    for n in range(count):
        with transaction.atomic():
            Group.objects.create(name=str(n))
            noop.enqueue(n)
    return count / (time.perf_counter() - began)


def wait(count: int) -> list[float]:
    """Enqueue tasks one by one for a worker that has nothing else to do; return the milliseconds
    from each commit to its start."""
    waits = []
    for n in range(count):
        time.sleep(0.3 + n % 7 / 10)  # not in step with who polls
        result = stamp.enqueue()
        committed, until = time.time(), time.monotonic() + WAIT_S
        while not result.is_finished and time.monotonic() < until:
            time.sleep(0.05)
            result.refresh()
        waits.append((result.return_value - committed) * 1000)
    return waits


def begin(count: int) -> list[str]:
    """Enqueue tasks that take a while, and wait until all run; return their ids."""
    before = Group.objects.count()
    ids = [work.enqueue(WORK_S).id for _ in range(count)]
    until = time.monotonic() + WAIT_S
    while Group.objects.count() < before + count and time.monotonic() < until:
        time.sleep(0.05)
    return ids


def watch(*ids: str) -> dict[str, Any]:
    """Return what became of tasks, as soon as all are finished."""
    began = time.monotonic()
    while True:
        statuses = [str(work.get_result(one).status) for one in ids]
        took_s = time.monotonic() - began
        if {*statuses} <= {"SUCCESSFUL", "FAILED"} or took_s > WATCH_S:
            counts = {status: statuses.count(status) for status in sorted({*statuses})}
            return {"statuses": counts, "took_s": took_s}
        time.sleep(0.2)


if __name__ == "__main__":
    verb, *given = sys.argv[1:]
    calls: dict[str, Any] = {"enqueue": enqueue, "wait": wait, "begin": begin}
    told = watch(*given) if verb == "watch" else calls[verb](int(given[0]))
    sys.stdout.write(json.dumps(told) + "\n")
