"""The adapter for the public harness, as the harness runs it: a process with an environment, tokens
on stdin and a line of JSON for each measure on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

HARNESS = Path(__file__).parents[2] / "bench" / "harness"
MAIN = HARNESS / "rota-bench" / "main.py"
WITHIN_S = 120
EXIT_S = 30
"""The contract allows five seconds from SIGTERM to the end, on a machine of its own."""
REQUIRED = {
    "claim_p50_ms",
    "claim_p95_ms",
    "claim_p99_ms",
    "enqueue_rate",
    "completion_rate",
    "queue_depth",
}

Record = dict[str, Any]


class Adapter:
    """A running adapter."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.records: list[Record] = []

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def read_until(self, is_last: Callable[[Record], bool]) -> Record:
        """Read to the first such record; each line is one record."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.records.append(json.loads(line))
            if is_last(self.records[-1]):
                return self.records[-1]
        raise AssertionError(f"it has ended with {self.process.wait(EXIT_S)}")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(EXIT_S)


@contextmanager
def started(url: str, **environment: str) -> Iterator[Adapter]:
    """Start it in the environment that the harness gives."""
    given = {
        "DATABASE_URL": url,
        "SCENARIO": "long_horizon",
        "PRODUCER_MODE": "fixed",
        "PRODUCER_PACING": "harness",
        "WORKER_COUNT": "8",
        "SAMPLE_EVERY_S": "1",
        **environment,
    }
    with subprocess.Popen(
        [sys.executable, str(MAIN)],
        env={**os.environ, **given},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        watch = threading.Timer(WITHIN_S, process.kill)
        watch.start()
        try:
            yield Adapter(process)
        finally:
            watch.cancel()
            process.kill()


def is_measured(metric: str) -> Callable[[Record], bool]:
    return lambda record: record.get("metric") == metric and record["value"] > 0


@pytest.mark.nightly
@pytest.mark.system
def test_the_adapter_speaks_the_contract_from_the_descriptor_to_sigterm(
    empty_database: str,
) -> None:
    manifest = json.loads((HARNESS / "rota-bench" / "adapter.json").read_text())
    with started(empty_database) as adapter:
        descriptor = adapter.read_until(lambda record: record["kind"] == "descriptor")
        assert descriptor["system"] == manifest["system"] == "rota"
        assert set(descriptor["event_tables"]) >= set(manifest["event_tables"])
        assert set(descriptor["extensions"]) == set(manifest["extensions"])

        adapter.say("ENQUEUE 40\nENQUEUE 2\n")
        adapter.read_until(is_measured("completion_rate"))
        adapter.read_until(is_measured("claim_p50_ms"))
        adapter.read_until(lambda record: record.get("metric") == "queue_depth")
        assert adapter.stop() == 0

    samples = [record for record in adapter.records if record["kind"] == "adapter"]
    assert {record["metric"] for record in samples} >= REQUIRED
    for record in samples:
        assert record["system"] == "rota" and record["instance_id"] == 0
        assert record["subject_kind"] == "adapter" and record["subject"] == ""
        assert isinstance(record["value"], (int, float)) and record["t"].endswith("Z")
    with psycopg.connect(empty_database) as connection:
        left = connection.execute("select count(*) from rota.job").fetchone()
        done = connection.execute(
            "select status, count(*) from rota.job_history group by 1"
        ).fetchall()
        assert left == (0,) and done == [("succeeded", 42)]
        for name in [*descriptor["event_tables"], *manifest["event_indexes"]]:
            assert connection.execute("select to_regclass(%s)", [name]).fetchone() != (None,), name
