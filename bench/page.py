"""`python bench/page.py [--check]`: writes benchmarks.md and the tables behind it from the JSON of
runs.

`bench/results/` has one run for each version of Python and one beside other queues. All their
figures come to `figures.md` and `peers.md` there, and those that a reader needs to benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench import place  # noqa: E402
from bench.figures import Figure, readable  # noqa: E402
from bench.peers import quote  # noqa: E402
from bench.reference import Speed  # noqa: E402
from bench.run import PARTS  # noqa: E402

Rows = dict[str, list[dict[str, Any] | None]]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "project" / "benchmarks.md"
PEERS = RESULTS / "peers.json"
"""A run of `make peers`, once one is committed."""
SHOWN = {"pick_up": ("p50", "p99"), "idle": ("statements", "pick-up")}
"""How the figures begin that benchmarks.md has of these parts; of other parts it has all."""
HEAD = """\
# Benchmarks

This page shows how fast Rota is, beside which systems, and which of its targets it misses.
`python bench/page.py` writes the page from the JSON in [bench/results](../../bench/results).

    make bench                                # all parts, at most twenty minutes
    .venv/bin/python bench/run.py --only idle # one part
    make peers                                # Rota beside other queues, at most forty minutes
    make peers ONLY=drain,pg-boss ROUNDS=1    # one scenario, of Rota and pg-boss
    make peers ONLY=enqueue,steady SECONDS=2  # short measurements

Both commands count committed jobs, on a PostgreSQL of their own on the same cores, on a disk and
with durable settings. They first time `fdatasync` there, and refuse a disk in memory, unless
`ARGS=--memory` asks for it: then commits cost nothing, and the figures are those of the CPU. Each
run below says which it is.

Each part has a fresh database. Peers take turns with Rota, and ratios are within a turn: compare
figures only within one run. `make bench` times a bare INSERT and `select 1` before and after each
part, and refuses a part in which these moved by more than a fifth. A run first watches the machine
and times two empty loops. On a busy machine it says so, because other work slows a peer more.

## Beside other queues

`make peers` installs each system into an environment of its own under `.peers/`. It skips a system
that cannot be installed, and says so. It needs Node for graphile-worker and pg-boss, Python 3.12
for Django's tasks and Oban, and `redis-server` for Celery and RQ. Each system plays in the best
setup for one job at a time that its documentation knows, and at its defaults. Each notices a dead
worker as soon as it can be told to, or after 10 seconds where it takes any number: so Rota's lease
is 10 seconds there, and not its 2 minutes. Handlers write to a file outside of the database, and
from it the run counts what a crash cost.

{peers}
[peers.md](../../bench/results/peers.md) has all tables: the settings of each system, the crash of a
worker and of the server, the cost of a steady rate and of an idle worker, a drain beside a million
jobs and under an old snapshot, and why a figure is missing.
[bench/peers/systems](../../bench/peers/systems) has one file for each system. At its end a run
leaves its JSON and a page of its own in `.peers/`. Copy the JSON to `bench/results/peers.json`:
then `python bench/page.py` writes its figures into all pages that quote it.

## Results

![No-op jobs a second, of one worker process](../pictures/benchmark.svg)

A figure in bold misses its target. [figures.md](../../bench/results/figures.md) has every figure,
with the number of jobs and rounds behind it.

"""
FIGURES = """\
# Figures of `make bench`

`python bench/page.py` writes this page from the JSON beside it.

"""
BESIDE = """\
# Rota beside other queues

`python bench/page.py` writes this page from `peers.json`.
[Benchmarks](../../docs/project/benchmarks.md) says how a run is made, and where another system is
ahead.

"""
FEATURES = """
## What other queues have

The README's table of features is not measured. It goes by the documentation and the source of

- Procrastinate 3.10.0: `lock`, `queueing_lock` and `connection` of `Task.configure`, `App.periodic`
- Celery 5.7.0: `celery.contrib.django.task.DjangoTask.delay_on_commit`; `Task.rate_limit`, which
  each worker counts for itself; `celery beat`; its tasks are plain functions
- Dramatiq 2.2.1: the middleware `AsyncIO`; `dramatiq.rate_limits`, with Redis or Memcached; its
  package has nothing for schedules or unique jobs
"""
EARLIER = """
## Measured earlier

These parts are longer. They were measured on 2026-11-22 to 2026-11-28 on two cores, some beside
other work. [earlier.md](../../bench/results/earlier.md) has all figures and the commands.

- A drain under an old snapshot has 86 % of the speed of one without (target ≥ 80 %).
- A transaction that commits 1 s late, under an old snapshot at 20,000 jobs a second: its job starts
  after 0.04 s, at most 0.27 s (≤ 0.6 s).
- A drain of one [batch](../understand/batches.md) of 200,000 has 99 … 102 % of the speed of a plain
  one (≥ 95 %), of a thousand batches one after the other 96 … 108 % (≥ 83 %), of a thousand mixed
  ones 82 … 90 %, with a batch for each job 38 %.
- What follows a batch is enqueued at most 0.20 s after the last member has ended (≤ 0.5 s).
- A claim beside a million due, unknown, dead or future jobs takes 97 … 111 % of the time of one
  without (≤ 120 %).
- A search in 10 million rows of history takes 3 … 139 ms, at most 149 ms (≤ 1,000 ms).
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="The page of figures.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    asked = parser.parse_args()
    wrong = {file: text for file, text in make().items() if file.read_text("utf-8") != text}
    if not asked.check:
        for file, text in wrong.items():
            file.write_text(text, encoding="utf-8")
        return 0
    for file in wrong:
        print(f"{file.name} is not what bench/results says: run `python bench/page.py`")
    return 1 if wrong else 0


def make() -> dict[Path, str]:
    """Return each page that quotes a run, as it should be."""
    runs = [json.loads(file.read_text("utf-8")) for file in sorted(RESULTS.glob("python-*.json"))]
    peers = json.loads(PEERS.read_text("utf-8")) if PEERS.exists() else None
    pages = {PAGE: write(runs, peers), RESULTS / "figures.md": write_figures(runs)}
    if peers is not None:
        pages[RESULTS / "peers.md"] = BESIDE + quote.summarise(peers) + FEATURES
        for file in list_pages():
            text = file.read_text("utf-8")
            if quote.BLOCK.search(text):
                pages[file] = quote.fill(text, peers)
    return pages


def list_pages() -> list[Path]:
    """Return the README and the pages of docs, but for the one of figures."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(file for file in docs if file != PAGE)]


def write(runs: list[dict[str, Any]], peers: dict[str, Any] | None) -> str:
    """Return the page of figures for the JSON of these runs, and of one beside other queues."""
    beside = quote.survey(peers) + "\n" if peers else ""
    text = HEAD.replace("{peers}\n", beside) + "".join(_describe(run) for run in runs)
    for name, figures in _list_parts(runs):
        begin = SHOWN.get(name, ("",))
        shown = {what: row for what, row in figures.items() if what.startswith(begin)}
        text += _write_part(name, shown, runs, is_whole=False)
    return text + EARLIER


def write_figures(runs: list[dict[str, Any]]) -> str:
    """Return the page with every figure of these runs."""
    text = FIGURES + "".join(_describe(run) for run in runs)
    for name, figures in _list_parts(runs):
        text += _write_part(name, figures, runs, is_whole=True)
    return text


def _list_parts(runs: list[dict[str, Any]]) -> Iterator[tuple[str, Rows]]:
    """Yield each part that was measured, with its figures of each run."""
    for name in PARTS:
        part = sys.modules[PARTS[name].__module__].PART
        by_name: Rows = {}
        for at, run in enumerate(runs):
            for figure in run["figures"]:
                if figure["part"] == part:
                    by_name.setdefault(figure["name"], [None] * len(runs))[at] = figure
        if by_name:
            yield name, by_name


def _describe(run: dict[str, Any]) -> str:
    server = run["server"]["version"].split(",")[0].split(" on ")[0]
    return (
        f"- Python {run['python']}, {run['at'][:10]}, {server}, {run['cores']} cores: "
        f"{place.describe(run)}; {run['load']}.\n"
    )


def _write_part(part: str, rows: Rows, runs: list[dict[str, Any]], *, is_whole: bool) -> str:
    """Return the table of a part; whole with what each figure was made of."""
    about = (sys.modules[PARTS[part].__module__].__doc__ or "").strip()
    of_runs = [at for at in range(len(runs)) if any(figures[at] for figures in rows.values())]
    pythons = [f"Python {runs[at]['python'].rpartition('.')[0]}" for at in of_runs]
    head = ["what", *pythons, "target", *["note"] * is_whole]
    lines = [f"\n## {part}\n\n{about}\n", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, figures in rows.items():
        some = next(figure for figure in figures if figure is not None)
        cells = [_write_value(figures[at]) for at in of_runs]
        row = [name, *cells, _as_figure(some).target, *[some["note"]] * is_whole]
        lines.append(f"| {' | '.join(row)} |")
    if is_whole and some.get("reference"):
        lines.append(f"\nBeside it, {Speed(**some['reference'])}.")
    return "\n".join(lines) + "\n"


def _write_value(figure: dict[str, Any] | None) -> str:
    if figure is None or figure["value"] is None:
        return ""
    value = f"{readable(figure['value'])} {figure['unit']}".strip()
    made = _as_figure(figure)
    return f"**{value}**, not {made.target}" if made.met is False else value


def _as_figure(figure: dict[str, Any]) -> Figure:
    return Figure(**{name: value for name, value in figure.items() if name != "met"})


if __name__ == "__main__":
    sys.exit(main())
