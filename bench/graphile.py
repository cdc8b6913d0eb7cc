"""graphile-worker, in turns with Rota."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg

from bench.peers.install import Installed, NotInstalled, install
from bench.peers.systems.graphile_worker import SYSTEM
from bench.pgbench import DRAIN_S, Drained
from bench.server import value

HERE = Path(__file__).resolve().parent
CONCURRENCY = 100
"""Jobs at once: the best of 24, 100 and 400."""


class Graphile:
    """graphile-worker from npm, with its local queue and batched completion.

    It keeps no history.
    """

    name = "graphile-worker"

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self.version = installed.version

    @classmethod
    def install(cls) -> Graphile | None:
        """Install it; return None, with a visible message, if that is impossible."""
        try:
            return cls(install(SYSTEM))
        except NotInstalled as why:
            print(
                f"\n*** SKIPPED: no comparison with graphile-worker: {why} ***\n", file=sys.stderr
            )
            return None

    def fill(self, url: str, count: int) -> None:
        """Create its schema and insert due jobs, 1,000 per statement."""
        self._run(url, "migrate")
        with psycopg.connect(url, autocommit=True) as connection:
            for first in range(0, count, 1_000):
                connection.execute(
                    "select count(*) from graphile_worker.add_jobs(array(select "
                    "json_populate_record(null::graphile_worker.job_spec,"
                    " json_build_object('identifier', 'noop', 'payload', json_build_object('n', "
                    "g))) from generate_series(%s::int, %s::int) g))",
                    [first, min(first + 1_000, count) - 1],
                )
            connection.execute("vacuum (analyze) graphile_worker._private_jobs")

    def drain(self, url: str, jobs: int) -> Drained:
        """Drain it."""
        said = json.loads(self._run(url, str(CONCURRENCY)).splitlines()[-1])
        with psycopg.connect(url, autocommit=True) as connection:
            left = value(connection, "select count(*) from graphile_worker._private_jobs")
        return Drained(jobs - left, said["took_s"], said["cpu_s"])

    def enqueue(self, url: str, *, bulk: int, for_s: float, keyed: bool) -> float:
        """Insert with its `addJobs`, in bulks, for a while; return jobs per second."""
        ways = ["enqueue", str(bulk), str(for_s), "keyed" if keyed else ""]
        return float(json.loads(self._run(url, *ways).splitlines()[-1])["per_second"])

    def migrate(self, url: str) -> None:
        """Create its schema."""
        self._run(url, "migrate")

    def _run(self, url: str, *arguments: str) -> str:
        with subprocess.Popen(
            [*self._installed.command, str(HERE / "graphile.cjs"), url, *arguments],
            env={"PATH": os.defpath, **self._installed.environment},
            # Held open: its end tells the process that the benchmark is gone.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                process.wait(DRAIN_S)
            finally:
                process.kill()
            if process.returncode != 0:
                raise RuntimeError(f"graphile-worker ended with {process.returncode}")
            return process.stdout.read()
