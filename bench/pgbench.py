"""pgbench with Rota's own two statements: what the same server does without a client that works."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.server import DurableServer, value
from rota.store.statements import source

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


def count_finished(url: str) -> int:
    """Return how many jobs are in Rota's history."""
    with psycopg.connect(url, autocommit=True) as connection:
        return int(
            value(connection, "select count(*) from rota.job_history where status = 'succeeded'")
        )
