"""The adapter for the public harness, as the harness runs it: a process with an environment, tokens
on stdin and a line of JSON for each measure on stdout.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
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


@pytest.mark.system
@pytest.mark.parametrize(("system", "chunk"), [("rota", "0"), ("rota-chunk", "100")])
def test_the_adapter_speaks_the_contract_from_the_descriptor_to_sigterm(
    empty_database: str, system: str, chunk: str
) -> None:
    manifest = json.loads((HARNESS / f"{system}-bench" / "adapter.json").read_text())
    with started(empty_database, ROTA_CHUNK=chunk) as adapter:
        descriptor = adapter.read_until(lambda record: record["kind"] == "descriptor")
        assert descriptor["system"] == manifest["system"] == system
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
        assert record["system"] == system and record["instance_id"] == 0
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


@pytest.mark.system
def test_a_phase_of_high_load_adds_to_the_tokens_what_the_rate_file_asks_for(
    empty_database: str, tmp_path: Path
) -> None:
    rate = tmp_path / "producer_rate.txt"
    rate.write_text("150.0")
    with started(
        empty_database, PRODUCER_RATE="100", PRODUCER_RATE_CONTROL_FILE=str(rate)
    ) as adapter:
        adapter.read_until(lambda record: record["kind"] == "descriptor")
        began = time.monotonic()
        adapter.read_until(is_measured("enqueue_rate"))
        target = adapter.read_until(is_measured("producer_target_rate"))
        assert adapter.stop() == 0
        took_s = time.monotonic() - began
    assert target["value"] == 150
    with psycopg.connect(empty_database) as connection:
        made = connection.execute(
            "select (select count(*) from rota.job) + (select count(*) from rota.job_history)"
        ).fetchone()
    # No token came, so only the difference is enqueued. It is owed for the time that has passed,
    # however unevenly the process got to it.
    assert made is not None and 0 < made[0] <= 50 * took_s


@pytest.mark.system
def test_a_replica_other_than_the_first_does_not_report_what_is_the_same_for_all(
    empty_database: str,
) -> None:
    with started(empty_database, BENCH_INSTANCE_ID="1") as adapter:
        adapter.say("ENQUEUE 5\n")
        adapter.read_until(is_measured("completion_rate"))
        assert adapter.stop() == 0
    metrics = {record.get("metric") for record in adapter.records}
    assert not metrics & {"queue_depth", "producer_target_rate"}
    assert {record["instance_id"] for record in adapter.records} == {1}


@pytest.mark.parametrize("value", [0.02, 1.0, 12.34, 98_765.0])
def test_a_percentile_is_right_to_three_figures_in_bounded_memory(value: float) -> None:
    latencies = load_adapter().Latencies()
    for _ in range(5_000):
        latencies.add(value)
    assert dict(latencies.quantiles()) == {
        name: pytest.approx(value, rel=0.001) for name in ("p50", "p95", "p99")
    }
    assert sum(len(counts) for _, counts in latencies._seconds) <= 2


def test_nothing_measured_is_zero() -> None:
    assert set(dict(load_adapter().Latencies().quantiles()).values()) == {0.0}


def load_adapter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rota_bench", MAIN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module
