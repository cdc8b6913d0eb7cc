"""The peers of the same run: pgbench with Rota's own two statements, and graphile-worker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.server import DurableServer, one
from rota.store.statements import source

HERE = Path(__file__).resolve().parent
GRAPHILE = "graphile-worker@0.17"
CONCURRENCY = 100
"""Jobs at once: the best of 24, 100 and 400."""
INSTALL_S = 180
DRAIN_S = 120
CLAIM = 200
"""Jobs per claim and per finish."""
CLIENTS = 2
"""As many connections as a Rota worker uses for claims and finishes."""

# The parameters of worker_claim.sql, which pgbench substitutes: it writes them as our SQL files do.
PARAMETERS = {
    "worker": "pgbench",
    "release": "bench",
    "types": "{noop}",
    "leases": "{2 minutes}",
    "records": "{false}",
    "queues": "{default}",
    "branch_queues": "{default}",
    "jobs": f"{{{CLAIM}}}",
    "ordinary": f"{{{CLAIM}}}",
    "lo": "{1}",
    "urgent_hi": "{0}",
    "hi": "{1}",
    "priorities": "{0}",
    "after_run_at": "{1970-01-01 00:00:00+00}",
    "after_id": "{0}",
    "depths": "{0}",
    "asked_since": "{2100-01-01 00:00:00+00}",
    "probe": "false",
    "known": "{}",
}
_TPS = re.compile(r"tps = ([\d.]+) \(without initial connection time\)")
_DONE = re.compile(r"number of transactions actually processed: (\d+)/")


@dataclass(frozen=True, slots=True)
class Drained:
    """Jobs committed as done, and how long it took."""

    jobs: int
    took_s: float
    cpu_s: float | None = None
    """Of the client."""

    @property
    def per_second(self) -> float:
        return self.jobs / self.took_s


class Pgbench:
    """Claims and finishes with nothing in between: each client moves a frontier of its own."""

    name = "pgbench"

    def __init__(self, server: DurableServer, place: Path) -> None:
        self._server = server
        self._script = place / "pgbench.sql"
        self._script.write_text(_script())

    def drain(self, url: str, jobs: int) -> Drained:
        """Drain a database with this many jobs of type `noop`."""
        given = [f"--define={name}={value}" for name, value in PARAMETERS.items()]
        turns = jobs // CLAIM // CLIENTS
        command = [
            str(self._server.program("pgbench")),
            "--no-vacuum",
            "--protocol=prepared",
            f"--client={CLIENTS}",
            f"--jobs={CLIENTS}",
        ]
        command += [f"--transactions={turns}", f"--file={self._script}", *given, url]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DRAIN_S,
            check=False,
        )
        tps, processed = _TPS.search(done.stdout), _DONE.search(done.stdout)
        if done.returncode != 0 or tps is None or processed is None:
            raise RuntimeError(f"pgbench failed with {done.returncode}: {done.stdout}{done.stderr}")
        return Drained(count_finished(url), int(processed[1]) / float(tps[1]))


def _script() -> str:
    statements = {
        name: "\n".join(line for line in source(name).splitlines() if not line.startswith("--"))
        .replace(":schema.", "rota.")
        .replace(":'schema'", "'rota'")
        for name in ("worker_claim", "job_finish")
    }
    claim = statements["worker_claim"]
    # A worker at full speed asks nothing else.
    for absent in ("refused::int8[]", "upkeep::jsonb", "poll::text"):
        claim = claim.replace(f":{absent}", f"null::{absent.partition('::')[2]}")
    finish = statements["job_finish"]
    # A batch of plain successes leaves these out.
    for absent in (
        "statuses::text[]",
        "results::text[]",
        "reasons::text[]",
        "resolutions::jsonb[]",
    ):
        finish = finish.replace(f":{absent}", f"null::{absent.partition('::')[2]}")
    finish = finish.replace(
        ":ran_us::bigint[]", "array_fill(1000::bigint, array[cardinality(:ids::int8[])])"
    )
    return f"""
select coalesce(array_agg(c.id), '{{}}')::text as ids, coalesce(array_agg(c.claims), '{{}}')::text
  as claims,
  coalesce(array[max(c.run_at)]::text, :after_run_at::text) as after_run_at,
  coalesce((array_agg(array[c.id]::text order by c.run_at desc, c.id desc))[1], :after_id::text)
    as after_id
from ({claim}) c where c.id is not null
\\gset
{finish};
"""


class Graphile:
    """graphile-worker from npm, with its local queue and batched completion.

    It keeps no history.
    """

    name = "graphile-worker"

    def __init__(self, place: Path) -> None:
        self._modules = place / "npm" / "node_modules"
        self._node = shutil.which("node")

    @classmethod
    def install(cls, place: Path) -> Graphile | None:
        """Install it; return None, with a visible message, if that is impossible."""
        made = cls(place)
        npm = shutil.which("npm")
        if npm is None or made._node is None:
            print(
                "\n*** SKIPPED: no node or npm here, so there is no comparison with "
                "graphile-worker ***\n",
                file=sys.stderr,
            )
            return None
        target = place / "npm"
        if made._modules.is_dir():
            return made
        target.mkdir()
        command = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--ignore-scripts",
            "--loglevel=error",
            f"--prefix={target}",
            GRAPHILE,
        ]
        try:
            subprocess.run(
                command,
                cwd=target,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            why = (
                " ".join(str(error.stderr).split())
                if isinstance(error, subprocess.CalledProcessError)
                else error
            )
            print(
                f"\n*** SKIPPED: npm could not install {GRAPHILE}, so there is no comparison with "
                f"it: {why} ***\n",
                file=sys.stderr,
            )
            return None
        return made

    @property
    def version(self) -> str:
        """The installed release."""
        return str(
            json.loads((self._modules / "graphile-worker" / "package.json").read_text())["version"]
        )

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
            left = one(connection, "select count(*) from graphile_worker._private_jobs")
        return Drained(jobs - left, said["took_s"], said["cpu_s"])

    def enqueue(self, url: str, *, bulk: int, for_s: float, keyed: bool) -> float:
        """Insert with its `addJobs`, in bulks, for a while; return jobs per second."""
        ways = ["enqueue", str(bulk), str(for_s), "keyed" if keyed else ""]
        return float(json.loads(self._run(url, *ways).splitlines()[-1])["per_second"])

    def migrate(self, url: str) -> None:
        """Create its schema."""
        self._run(url, "migrate")

    def _run(self, url: str, *arguments: str) -> str:
        assert self._node is not None
        environment = {
            "NODE_PATH": str(self._modules),
            "NODE_ENV": "production",
            "PATH": str(Path(self._node).parent),
        }
        with subprocess.Popen(
            [self._node, str(HERE / "graphile.cjs"), url, *arguments],
            cwd=self._modules.parent,
            env=environment,
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


def count_finished(url: str) -> int:
    """Return how many jobs are in Rota's history."""
    with psycopg.connect(url, autocommit=True) as connection:
        return int(
            one(connection, "select count(*) from rota.job_history where status = 'succeeded'")
        )
