"""What is measured each minute: the memory of every process, the connections, the size of every
table and index, WAL, and the oldest snapshot."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import dict_row

from chaos import heap
from chaos.workers import Workers

MIB = 2**20
JOBS = "select coalesce(n_tup_ins, 0) from pg_stat_user_tables where relid = 'rota.job'::regclass"
"""Jobs that were ever inserted."""
SESSIONS = """
select pid, coalesce(nullif(application_name, ''), 'without a name') as name,
  extract(epoch from clock_timestamp() - backend_start)::float8 as age_s
from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()
"""
HORIZON = """
select coalesce(max(age(backend_xmin)), 0) as transactions,
  coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::float8 as seconds
from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()
"""
SIZES = r"""
with relation as (
  select c.oid, regexp_replace(c.relname, '_\d{8}', '') as name, c.relkind,
    regexp_replace(coalesce(t.relname, c.relname), '_\d{8}', '') as of_table,
    coalesce(t.oid, c.oid) as table_oid
  from pg_class c left join pg_index i on i.indexrelid = c.oid
  left join pg_class t on t.oid = i.indrelid
  where c.relnamespace = 'rota'::regnamespace and c.relkind in ('r', 'i')
),
-- Of each table the width that its rows need: the head, and the mean of each column.
width as (
  select (s.schemaname || '.' || quote_ident(s.tablename))::regclass::oid as oid,
    28 + sum(s.avg_width * (1 - s.null_frac)) as bytes
  from pg_stats s where s.schemaname = 'rota' group by 1
)
select r.name, r.relkind = 'i' as is_index, r.of_table, count(*) as relations,
  sum(case when r.relkind = 'r' then pg_table_size(r.oid) else pg_relation_size(r.oid) end)::bigint
    as bytes,
  sum(case when r.relkind = 'r' then s.n_live_tup end)::bigint as rows,
  sum(case when r.relkind = 'r' then s.n_dead_tup end)::bigint as dead,
  sum(case when r.relkind = 'r' then s.n_live_tup * w.bytes end)::bigint as needed,
  sum(case when r.relkind = 'r' then s.seq_scan else x.idx_scan end)::bigint as scans
from relation r
left join pg_stat_user_tables s on s.relid = r.oid
left join pg_stat_user_indexes x on x.indexrelid = r.oid
left join width w on w.oid = r.oid
group by 1, 2, 3
"""
PROBES = re.compile("^soak ")
"""The sessions of the soak itself."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a worker, or a session of the server."""

    name: str
    pid: int
    age_s: float
    mib: float
    """Resident memory; of a session, what it has for itself."""
    blocks: int | None = None
    """What Python holds; None: not a worker, or one that has not begun."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or an index, with all of its partitions."""

    name: str
    is_index: bool
    of_table: str
    relations: int
    bytes: int
    rows: int | None
    """By the server's statistics; None: it is an index."""
    dead: int | None
    needed: int | None
    """Bytes that its rows need, as ANALYZE has seen them; None: it has not."""
    scans: int | None
    """Of a table: how often it was read whole."""


@dataclass(slots=True)
class Sample:
    """One moment."""

    at_s: float
    jobs: int
    days: float
    wal_mib: float
    horizon_s: float
    horizon_transactions: int
    connections: int
    sessions: dict[str, int]
    at_rest: bool
    workers: list[Process] = field(default_factory=list)
    backends: list[Process] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        return asdict(self)


class Sampler:
    """Takes samples."""

    def __init__(self, url: str, workers: Workers) -> None:
        self.samples: list[Sample] = []
        self._url = url
        self._workers = workers
        self._began = time.monotonic()
        with psycopg.connect(url, autocommit=True) as connection:
            self._wal = _one(connection, "select pg_current_wal_lsn()")

    @property
    def at_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def take(self, days: float, *, at_rest: bool = False) -> Sample:
        """Take one."""
        with psycopg.connect(
            self._url, autocommit=True, application_name="soak sample", row_factory=dict_row
        ) as connection:
            connection.execute("select pg_stat_force_next_flush()")
            sessions = [
                row
                for row in connection.execute(SESSIONS).fetchall()
                if not PROBES.match(row["name"])
            ]
            horizon = connection.execute(HORIZON).fetchone() or {}
            sample = Sample(
                at_s=self.at_s,
                jobs=_one(connection, JOBS),
                days=days,
                wal_mib=float(
                    _one(connection, "select pg_current_wal_lsn() - %s::pg_lsn", self._wal)
                )
                / MIB,
                horizon_s=horizon["seconds"],
                horizon_transactions=horizon["transactions"],
                connections=len(sessions),
                sessions=_count([row["name"] for row in sessions]),
                at_rest=at_rest,
                workers=self._measure_workers(),
                backends=[_measure_backend(row) for row in sessions],
                relations=[
                    Relation(**{("rows" if k == "rows" else k): v for k, v in row.items()})
                    for row in connection.execute(SIZES).fetchall()
                ],
            )
        self.samples.append(sample)
        return sample

    def _measure_workers(self) -> list[Process]:
        measured = []
        for worker in self._workers.all:
            if worker.ended_at is None:
                name = f"worker of {worker.processes}"
                measured += _measure(name, worker.pid, self._workers.heap)
        return measured


def _measure(name: str, pid: int, heaps: Path) -> list[Process]:
    """Measure a worker and the processes that it started."""
    try:
        process = psutil.Process(pid)
        children = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    measured = []
    for member in (process, *children):
        try:
            age_s, rss = time.time() - member.create_time(), member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        what = name if member.pid == pid else f"{name}, child"
        measured.append(Process(what, member.pid, age_s, rss / MIB, heap.read(heaps, member.pid)))
    return measured


def _measure_backend(row: dict[str, Any]) -> Process:
    try:
        own = psutil.Process(row["pid"]).memory_full_info().uss
    except psutil.Error:  # it has ended
        own = 0
    return Process(row["name"], row["pid"], row["age_s"], own / MIB)


def _count(names: list[str]) -> dict[str, int]:
    return {name: names.count(name) for name in sorted(set(names))}


def _one(connection: psycopg.Connection[Any], statement: str, *params: object) -> Any:
    row = connection.execute(statement.encode(), params).fetchone()
    assert row is not None
    return next(iter(row.values())) if isinstance(row, dict) else row[0]
