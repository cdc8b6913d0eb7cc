"""Instructions of the server for each way to use it: `python bench/instructions.py [OTHER/src]`.

The backends run under callgrind, which counts the same on a busy machine. A way is counted with few
jobs and with many; the difference is what its jobs cost, without connecting and planning. It says
nothing about waits, locks and the kernel. It needs `valgrind` and takes about two minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.server import DurableServer  # noqa: E402
from tests.support.guard import Run  # noqa: E402

WAYS = {
    "single INSERT": (100, 400),
    "bulk, alike": (2_000, 6_000),
    "bulk, with a key": (2_000, 6_000),
    "claim and finish": (4_000, 12_000),
}
"""How many jobs the short and the long run of each way have."""
WORK = """
import sys
import rota
from rota.store.migrate import migrate

url, way, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = rota.App(url)

@app.job("noop")
async def noop(): ...

if way == "prepare":
    migrate(url)
    app.sync()
elif way == "single INSERT":
    for _ in range(jobs):
        app.enqueue(noop.new())
elif way == "claim and finish":
    assert app.drain(concurrency=1000).succeeded == jobs
else:
    for start in range(0, jobs, 1000):
        keys = ({"key": f"{jobs}:{start + n}"} for n in range(1000))
        with_keys = [noop.new().using(**key) for key in keys] if way.endswith("key") else None
        app.enqueue_many(with_keys or [noop.new()] * 1000)
app.close()
"""
"""The work of a release: both must be able to run it."""
END_S = 60
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class CountedServer(DurableServer):
    """A server whose processes run under callgrind; each leaves its count when it ends."""

    others: set[int]
    """Processes that do no counted work."""

    def _start_on(self, port: int) -> None:
        counts = self.counts
        counts.mkdir(exist_ok=True)
        counts.chmod(0o777)  # the server may run as another user
        wrapper = self.place / "postgres"
        wrapper.write_text(
            "#!/bin/sh\n"
            f"exec valgrind --quiet --tool=callgrind --callgrind-out-file='{counts}/%p' "
            f"'{self.program('postgres')}' \"$@\"\n"
        )
        wrapper.chmod(0o755)
        self._run(
            *("pg_ctl", "start", "--wait", "--timeout", str(END_S), "--pgdata", str(self.data)),
            *("-p", str(wrapper)),
            *("--options", f"-p {port} -h 127.0.0.1 -k '{self.socket_dir}' -c autovacuum=off"),
        )

    @property
    def counts(self) -> Path:
        """The directory with a file for each process."""
        return self.place / "counts"

    def instructions(self) -> int:
        """Instructions of all backends that have ended; waits for those that are about to."""
        until = time.monotonic() + END_S
        while backends := self.processes() - self.others:
            if time.monotonic() > until:
                raise RuntimeError(f"backends have not ended in {END_S} s: {sorted(backends)}")
            time.sleep(0.05)
        texts = [file.read_text() for file in self.counts.iterdir()]
        return sum(int(total[1]) for text in texts if (total := _TOTALS.search(text)))

    def processes(self) -> set[int]:
        """The processes of the server that run now."""
        postmaster = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        return {child.pid for child in psutil.Process(postmaster).children()}


def main() -> None:
    """Print the instructions of each way, and what share they are of the other release's."""
    parser = argparse.ArgumentParser(prog="bench/instructions.py", description=__doc__)
    parser.add_argument("other", type=Path, nargs="?", help="the src directory of a release")
    parser.add_argument("--keep", type=Path, help="where to copy callgrind's files")
    options = parser.parse_args()
    if options.other and not (options.other / "rota").is_dir():
        parser.error(f"{options.other} has no package rota: name the src directory of a checkout")
    if shutil.which("valgrind") is None:
        parser.error("this needs valgrind: apt-get install valgrind")
    run = Run()
    try:
        server = CountedServer(run.place)
        server.start()
        ours = _count(server, ROOT / "src")
        others = _count(server, options.other.resolve()) if options.other else {}
        server.stop()
        if options.keep:
            shutil.copytree(server.counts, options.keep, dirs_exist_ok=True)
    finally:
        run.end()
    for way, count in ours.items():
        beside = f"  {count / others[way]:.3f} of {others[way]:,.0f}" if others else ""
        print(f"{way:18} {count:10,.0f} a job{beside}")


def _count(server: CountedServer, src: Path) -> dict[str, float]:
    with server.database(migrated=False) as url:
        server.others = server.processes()
        _work(src, url, "prepare", 0)
        counted = {}
        for way, (few, many) in WAYS.items():
            short, long = (_count_way(server, src, url, way, jobs) for jobs in (few, many))
            counted[way] = (long - short) / (many - few)
        return counted


def _count_way(server: CountedServer, src: Path, url: str, way: str, jobs: int) -> int:
    # Every way begins with an empty table, and the claim with the jobs that it takes.
    with server.admin(url.partition("?")[0].rpartition("/")[2]) as admin:
        admin.execute("truncate rota.job, rota.job_history, rota.idempotency")
    if way == "claim and finish":
        _work(src, url, "bulk, alike", jobs)
    before = server.instructions()
    _work(src, url, way, jobs)
    return server.instructions() - before


def _work(src: Path, url: str, way: str, jobs: int) -> None:
    subprocess.run(
        [sys.executable, "-c", WORK, url, way, str(jobs)],
        env={**os.environ, "PYTHONPATH": str(src)},
        check=True,
    )


if __name__ == "__main__":
    main()
