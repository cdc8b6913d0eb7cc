"""`python bench/harness/sweep.py --json FILE [--systems rota,…] [--full] OPTIONS OF run.py`.

Runs the harness's rate, chaos and pressure cells, each an invocation of its own, and writes what
came of each: the completion rate before, while and after what disturbs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
SHORT, FULL = 0, 1
SAMPLE_S = (2, 5)
OLD_S = 7.5
"""A replica without a newer sample is gone."""
JOINED: dict[str, Callable[[Iterable[float]], float]] = {
    "completion_rate": sum, "enqueue_rate": sum, "queue_depth": sum,
    "claim_p50_ms": max, "claim_p99_ms": max,
}  # fmt: skip
CELL_S = 900
"""A cell that takes longer counts as failed, as in the harness's own sweep."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario: its phases, each with its type and its seconds, short and full."""

    name: str
    kind: str
    phases: tuple[tuple[str, str, tuple[int, int]], ...]
    rate: int
    replicas: int = 1
    workers: int = 32

    def arguments(self, system: str, length: int) -> list[str]:
        phases = [f"--phase={name}={kind}:{s[length]}s" for name, kind, s in self.phases]
        figures = {
            "--producer-rate": self.rate,
            "--replicas": self.replicas,
            "--worker-count": self.workers,
            "--sample-every": SAMPLE_S[length],
        }
        options = [text for name, value in figures.items() for text in (name, str(value))]
        return ["run", "--systems", system, *options, *phases]


def _cell(
    name: str, kind: str, *disturbed: tuple[str, str, tuple[int, int]], rate: int, **more: int
) -> Cell:
    warmup, clean = ("warmup", "warmup", (6, 30)), ("baseline", "clean", (12, 60))
    after = ("recovery", "clean", (16, 60 if kind == "chaos" else 180))
    return Cell(name, kind, (warmup, clean, *disturbed, after), rate, **more)


def _chaos(name: str, *disturbed: tuple[str, str, tuple[int, int]], **more: int) -> Cell:
    return _cell(name, "chaos", *disturbed, rate=300 if "replicas" in more else 600, **more)


def _pressure(name: str, phase: str, full_s: int = 240, rate: int = 800, workers: int = 32) -> Cell:
    return _cell(name, "pressure", ("stress", phase, (24, full_s)), rate=rate, workers=workers)


# The scenarios, rates and numbers of replicas are those of the harness's sweep of 2026-05-09.
CELLS = (
    Cell("rate", "rate", (("warmup", "warmup", (6, 30)), ("clean", "clean", (20, 180))), 800),
    _chaos("postgres_restart", ("stress", "postgres-restart", (20, 60))),
    _chaos("pg_backend_kill", ("stress", "pg-backend-kill(rate=2)", (20, 60))),
    _chaos("pool_exhaustion", ("stress", "pool-exhaustion(idle_conns=300)", (20, 60))),
    _chaos(
        "crash_recovery",
        ("stress", "kill-worker(instance=0)", (14, 60)),
        ("restart", "start-worker(instance=0)", (10, 60)),
        replicas=2,
    ),
    _chaos(
        "repeated_kills", ("stress", "repeated-kill(instance=0,period=6s)", (24, 120)), replicas=2
    ),
    _pressure("idle_in_tx", "idle-in-tx"),
    _pressure("sustained_high_load", "high-load"),
    _pressure("active_readers", "active-readers"),
    _pressure("event_burst", "high-load", 300, rate=1200, workers=64),
)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--systems", default="rota,procrastinate")
    parser.add_argument("--cells", help="names, with commas between them")
    parser.add_argument("--full", action="store_true", help="phases as long as the harness's")
    parser.add_argument("--table", action="store_true", help="print what FILE has, run nothing")
    asked, options = parser.parse_known_args()
    if asked.table:
        print("\n".join(table(json.loads(asked.json.read_text()))))
        return 0
    wanted = asked.cells.split(",") if asked.cells else [cell.name for cell in CELLS]
    rows = json.loads(asked.json.read_text()) if asked.json.exists() else []
    for cell in CELLS:
        if cell.name in wanted:
            for system in asked.systems.split(","):
                rows.append(run(cell, system, FULL if asked.full else SHORT, options))
                asked.json.write_text(json.dumps(rows, indent=1) + "\n")
                print(json.dumps(rows[-1]), flush=True)
    return 0


def run(cell: Cell, system: str, length: int, options: list[str]) -> dict[str, Any]:
    """Run one cell; return what came of it."""
    began = datetime.now(UTC)
    load = os.getloadavg()[0]
    command = [sys.executable, str(HERE / "run.py"), *options, f"--within-s={CELL_S}", "--"]
    done = subprocess.run(
        [*command, *cell.arguments(system, length)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = [line for line in done.stderr.splitlines() if "results at: " in line]
    row: dict[str, Any] = {
        "cell": cell.name,
        "kind": cell.kind,
        "system": system,
        "at": began.isoformat(timespec="seconds"),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "exit_status": done.returncode,
    }
    if found:
        results = Path(found[-1].partition("results at: ")[2])
        row["phases"] = dict(read_phases(results / "raw.csv"))
    else:
        row["last_words"] = done.stderr.splitlines()[-3:]
    return row


def read_phases(raw: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each phase with the medians of its samples. Rates are sums over the replicas: each
    replica has moments of its own, so to each sample the newest of the others is added."""
    samples = defaultdict[str, list[dict[str, str]]](list)
    with raw.open() as file:
        for record in csv.DictReader(file):
            if record["subject_kind"] == "adapter" and not record["subject"]:
                samples[record["metric"]].append(record)
    phases: dict[str, dict[str, float]] = defaultdict(dict)
    for metric, join in JOINED.items():
        values = defaultdict[str, list[float]](list)
        newest: dict[str, tuple[float, float]] = {}
        for record in sorted(samples[metric], key=lambda record: float(record["elapsed_s"])):
            at = float(record["elapsed_s"])
            newest[record["instance_id"]] = at, float(record["value"])
            joined = join(value for then, value in newest.values() if at - then < OLD_S)
            values[record["phase_label"]].append(joined)
        for phase, found in values.items():
            phases[phase][metric] = round(median(found), 1)
            if metric == "completion_rate":
                phases[phase]["lowest_completion_rate"] = round(min(found), 1)
    yield from phases.items()


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table: completions per second by phase."""
    yield "| cell | system | baseline | disturbed | its lowest | recovery | p50, p99 ms | load |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        phases = row.get("phases", {})
        before = phases.get("baseline", phases.get("clean", {}))
        after = phases.get("recovery", before)
        disturbed = phases.get("stress", {})
        cells = [
            row["cell"],
            row["system"],
            _number(before, "completion_rate"),
            _number(disturbed, "completion_rate"),
            _number(disturbed, "lowest_completion_rate"),
            _number(phases.get("recovery", {}), "completion_rate"),
            f"{_number(after, 'claim_p50_ms')}, {_number(after, 'claim_p99_ms')}",
            f"{row['load_before']} … {row['load_after']}",
        ]
        if row["exit_status"]:
            cells[-1] += f"; ended with {row['exit_status']}"
        yield f"| {' | '.join(cells)} |"


def _number(phase: dict[str, float], metric: str) -> str:
    return f"{phase[metric]:,.0f}" if metric in phase else "–"


if __name__ == "__main__":
    sys.exit(main())
