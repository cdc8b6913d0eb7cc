"""A worker process under measurement: `python -m bench.worker drain|run`.

It says when it is about to claim, and at the end how long it took.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

import rota
from bench.app import Progress, declare
from rota.observe.events import WorkerStarted


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["drain", "run"])
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--no-notify", action="store_true")
    parser.add_argument("--progress", type=Path)
    asked = parser.parse_args()
    threading.Thread(target=_end_with_the_benchmark, daemon=True).start()
    types = declare(Progress(asked.progress) if asked.progress else None)
    app = rota.App(jobs=[types.jobs], notify=not asked.no_notify)
    clock = Clock()
    app.on(WorkerStarted, clock.start)
    report = (
        app.drain(concurrency=asked.slots)
        if asked.mode == "drain"
        else app.run(concurrency=asked.slots)
    )
    print(
        json.dumps(
            {
                **clock.stop(),
                "succeeded": report.succeeded,
                "failed": report.failed,
                "dead": report.dead,
            }
        ),
        flush=True,
    )


class Clock:
    """The time from just before the first claim to the last write.

    It is a little more than from the first claim to the last commit.
    """

    def __init__(self) -> None:
        self._started = 0.0
        self._cpu_s = 0.0

    def start(self, _: WorkerStarted) -> None:
        self._started, self._cpu_s = time.perf_counter(), _cpu_s()
        print(json.dumps({"started": True}), flush=True)

    def stop(self) -> dict[str, float]:
        return {"took_s": time.perf_counter() - self._started, "cpu_s": _cpu_s() - self._cpu_s}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _end_with_the_benchmark() -> None:
    # The other end of the pipe closes when the benchmark ends, however it ends. Without that, a
    # worker would wait for its database for ever.
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
