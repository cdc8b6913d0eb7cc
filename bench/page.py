"""`python bench/page.py [--check]`: writes benchmarks.md from the JSON of runs.

`bench/results/` has one run for each version of Python, and the text of parts that are not in them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.figures import Figure, readable  # noqa: E402
from bench.peers import quote  # noqa: E402
from bench.run import PARTS  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "project" / "benchmarks.md"
PEERS = RESULTS / "peers.json"
"""A run of `make peers`, once one is committed."""
HEAD = """\
# Benchmarks

How fast Rota is, beside what, and which of its targets it misses. This page is written by
`python bench/page.py` from one run for each version of Python, and other pages take their figures
from here.

    make bench                                # all parts, at most twenty minutes
    .venv/bin/python bench/run.py --only idle # one part

A run counts committed jobs with durable settings: it first checks that `fsync`,
`synchronous_commit` and `full_page_writes` are on. It uses a PostgreSQL of its own on the same
cores, with a fresh database for each part. Peers take turns with Rota, and ratios are within a
turn: compare figures only within one run. Before it begins it watches the machine and times two
empty loops. On a busy machine it says so, because other work slows a peer more than Rota.

## Beside other queues

    make peers                                # all systems and scenarios, at most forty minutes
    make peers ONLY=drain,pg-boss ROUNDS=1    # one scenario, of Rota and pg-boss
    make peers ONLY=enqueue,steady SECONDS=2  # short measurements

`make peers` installs each system into an environment of its own under `.peers/`. A system that
cannot be installed is skipped, and the run says so. It needs Node for graphile-worker and pg-boss,
Python 3.12 for Django's tasks and Oban, and `redis-server` for Celery and RQ. The others use one
PostgreSQL with its durable settings, and take turns, each in a fresh database; one round, and 30
seconds of the steady rate, unless `--rounds` and `--steady` say more. Each plays in the best
configuration that its documentation knows, and at its defaults. Handlers write to a file outside of
the database, and from it the run counts what a crash cost. A dead worker is noticed as soon as a
system can be told to, after 10 seconds where it takes any number: so Rota's lease is 10 seconds
there, and not its 2 minutes.

It measures the crash of a worker and of the server, a drain, the pick-up of 400 single jobs,
enqueueing, what a steady rate and an idle worker cost, and a drain with a million jobs waiting or
an old snapshot open. At the end `.peers/` has a JSON file with all figures and a page that needs no
other file. The page begins with the questions in which another system is ahead.
[bench/peers/systems](../../bench/peers/systems) has one file for each system. A run that is copied
to `bench/results/peers.json` is shown below, and `python bench/page.py` writes its figures into the
other pages that quote it.

{peers}
### What other queues have

The README's table of features is not measured. It goes by the documentation and the source of

- Procrastinate 3.10.0: `lock`, `queueing_lock` and `connection` of `Task.configure`, `App.periodic`
- Celery 5.7.0: `celery.contrib.django.task.DjangoTask.delay_on_commit`; `Task.rate_limit`, which
  each worker counts for itself; `celery beat`; its tasks are plain functions
- Dramatiq 2.2.1: the middleware `AsyncIO`; `dramatiq.rate_limits`, with Redis or Memcached; its
  package has nothing for schedules or unique jobs

## Results

![No-op jobs a second, of one worker process](../pictures/benchmark.svg)

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
    pages = {PAGE: write(runs, peers)}
    if peers is not None:
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
    beside = quote.summarise(peers) + "\n" if peers else ""
    text = HEAD.replace("{peers}\n", beside) + "".join(_describe(run) for run in runs)
    for name in PARTS:
        part = sys.modules[PARTS[name].__module__].PART
        by_name: dict[str, list[dict[str, Any] | None]] = {}
        for at, run in enumerate(runs):
            for figure in run["figures"]:
                if figure["part"] == part:
                    by_name.setdefault(figure["name"], [None] * len(runs))[at] = figure
        if by_name:
            text += _write_part(name, by_name, runs)
    return text + (RESULTS / "earlier.md").read_text("utf-8")


def _describe(run: dict[str, Any]) -> str:
    server = run["server"]["version"].split(",")[0].split(" on ")[0]
    return (
        f"- Python {run['python']}, {run['at'][:10]}, {server}, {run['cores']} cores: "
        f"{run['load']}.\n"
    )


def _write_part(
    part: str, by_name: dict[str, list[dict[str, Any] | None]], runs: list[dict[str, Any]]
) -> str:
    about = (sys.modules[PARTS[part].__module__].__doc__ or "").strip()
    pythons = " | ".join(f"Python {run['python'].rpartition('.')[0]}" for run in runs)
    lines = [f"\n## {part}\n\n{about}\n", f"| what | {pythons} | unit | target | note |"]
    lines.append("|---" * (4 + len(runs)) + "|")
    for name, figures in by_name.items():
        some = next(one for one in figures if one is not None)
        cells = " | ".join(_write_value(one) for one in figures)
        target = _as_figure(some).target
        lines.append(f"| {name} | {cells} | {some['unit']} | {target} | {some['note']} |")
    return "\n".join(lines) + "\n"


def _write_value(figure: dict[str, Any] | None) -> str:
    if figure is None or figure["value"] is None:
        return ""
    value = readable(figure["value"])
    made = _as_figure(figure)
    return f"**{value}**, not {made.target}" if made.met is False else value


def _as_figure(figure: dict[str, Any]) -> Figure:
    return Figure(**{name: value for name, value in figure.items() if name != "met"})


if __name__ == "__main__":
    sys.exit(main())
