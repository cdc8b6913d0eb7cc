"""Two releases in turns: `python bench/pairs.py OTHER/src`, a drain; with `--bulk 1000` bulks of so
many jobs, with `--bulk 1000 --keys` those with keys.

Only the ratio within a pair means anything; single pairs scatter by a fifth.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench import place  # noqa: E402
from bench.server import DurableServer  # noqa: E402

DRAIN = """
import logging, resource, sys, time
import rota
from rota.store.migrate import migrate

url, jobs = sys.argv[1], int(sys.argv[2])
migrate(url)
app = rota.App(url)

@app.job("noop")
async def noop(): ...

logging.getLogger("rota").setLevel(logging.WARNING)
app.sync()
for _ in range(jobs // 1000):
    app.enqueue_many([noop.new()] * 1000)

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

cpu, began = cpu_s(), time.perf_counter()
report = app.drain(concurrency=100)
took = time.perf_counter() - began
assert report.succeeded == jobs, report
print(jobs / took, 1e6 * (cpu_s() - cpu) / jobs)
app.close()
"""
ENQUEUE = """
import sys, time
import rota
from rota.store.migrate import migrate

url, jobs, size, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
migrate(url)
app = rota.App(url)

@app.job("noop")
async def noop(n: int): ...

def bulk(first):
    numbers = range(first, first + size)
    if keys:
        made = [noop.new(n=n).using(key=f"bench:{n}") for n in numbers]
    else:
        made = [noop.new(n=n) for n in numbers]
    app.enqueue_many(made)

app.sync()
bulk(0)
cpu, began = time.process_time(), time.perf_counter()
for first in range(size, size + jobs, size):
    bulk(first)
took = time.perf_counter() - began
print(jobs / took, 1e6 * (time.process_time() - cpu) / jobs)
app.close()
"""
"""The work of a release: both must be able to run it."""


def main() -> None:
    """Print each pair as it ends, and the medians at the end."""
    parser = argparse.ArgumentParser(prog="bench/pairs.py", description=__doc__)
    parser.add_argument("other", type=Path, help="the src directory of the release to compare with")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--bulk", type=int, help="enqueue the jobs in bulks of so many")
    parser.add_argument("--keys", action="store_true", help="each job of a bulk has a key")
    place.add_option(parser)
    options = parser.parse_args()
    if not (options.other / "rota").is_dir():
        parser.error(f"{options.other} has no package rota: name the src directory of a checkout")
    work = [DRAIN, str(options.jobs)]
    if options.bulk is not None:
        work = [ENQUEUE, str(options.jobs), str(options.bulk), str(options.keys)]
    with place.begin_run(memory=options.memory) as (run, sync):
        print(f"The server is {sync}")
        server = DurableServer(run.place)
        server.start()
        ratios = [
            _pair(server, options.other.resolve(), work, turn) for turn in range(options.pairs)
        ]
        speed, cpu = (statistics.median(values) for values in zip(*ratios, strict=True))
        print(
            f"median of {options.pairs} pairs: {speed:.3f} of the other's speed, {cpu:.3f} of its "
            "client's CPU"
        )


def _pair(server: DurableServer, other: Path, work: list[str], turn: int) -> tuple[float, float]:
    order = [other, ROOT / "src"] if turn % 2 == 0 else [ROOT / "src", other]
    measured = {src: _measure(server, src, work) for src in order}
    (speed, cpu), (other_speed, other_cpu) = measured[ROOT / "src"], measured[other]
    print(
        f"{speed:,.0f} jobs/s at {cpu:.1f} µs, the other {other_speed:,.0f} at {other_cpu:.1f}: "
        f"{speed / other_speed:.3f}",
        flush=True,
    )
    return speed / other_speed, cpu / other_cpu


def _measure(server: DurableServer, src: Path, work: list[str]) -> tuple[float, float]:
    with server.database(migrated=False) as url:
        done = subprocess.run(
            [sys.executable, "-c", work[0], url, *work[1:]],
            env={**os.environ, "PYTHONPATH": str(src)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    speed, cpu = map(float, done.stdout.split())
    return speed, cpu


if __name__ == "__main__":
    main()
