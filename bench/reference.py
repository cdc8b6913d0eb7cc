"""What one small statement costs on the machine at this moment: a bare INSERT of a job's columns,
with a primary key and nothing else, each its own commit; and `select 1`.

A figure beside it can be compared with that of another hour, when the machine was three times as
fast; a figure alone cannot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median

import psycopg

from bench.server import DurableServer

TIMES = 400
MOVED_MAX = 1.2
"""Between the times before and after a part; with more, the figures of the part mean nothing."""
TABLE = """
create table bare (like rota.job including defaults);
alter table bare alter id set default nextval('rota.job_id_seq'), add primary key (id)
"""
INSERT = (
    b"insert into bare (queue, job_type, payload, payload_version, priority) "
    b"values (%s, %s, %s, %s, %s) returning id"
)
VALUES = ("default", "noop", '{"n": 1}', 1, 0)
SELECT = b"select 1"


@dataclass(frozen=True, slots=True)
class Speed:
    """Medians in microseconds, as a client on the same machine waits for them."""

    insert_us: float
    select_us: float

    def as_json(self) -> dict[str, float]:
        """Return it for the JSON of a figure."""
        return asdict(self)

    def __str__(self) -> str:
        return f"a bare INSERT {self.insert_us:,.0f} µs, select 1 {self.select_us:,.0f} µs"

    def find_move(self, other: Speed) -> float:
        """Return how many times as long the slower one takes, in what moved most."""
        pairs = ((self.insert_us, other.insert_us), (self.select_us, other.select_us))
        return max(max(pair) / min(pair) for pair in pairs)


def describe_speeds(speeds: Sequence[Speed]) -> str:
    """Say how fast the machine was over several measurements."""
    inserts, selects = zip(*((speed.insert_us, speed.select_us) for speed in speeds), strict=True)
    return (
        f"a bare INSERT took {min(inserts):,.0f} to {max(inserts):,.0f} µs, "
        f"`select 1` {min(selects):,.0f} to {max(selects):,.0f} µs"
    )


class Reference:
    """A connection with both statements prepared, and the table for the first."""

    def __init__(self, connection: psycopg.Connection) -> None:
        connection.prepare_threshold = 0
        self._cursor = psycopg.Cursor(connection)

    def insert(self) -> float:
        """Insert a row; return the microseconds until the server confirmed it."""
        return self._time(INSERT, VALUES)

    def select(self) -> float:
        """Return the microseconds of the shortest statement."""
        return self._time(SELECT)

    def measure(self, times: int = TIMES) -> Speed:
        """Run both statements in turns."""
        taken = [(self.insert(), self.select()) for _ in range(times)]
        return Speed(*map(median, zip(*taken, strict=True)))

    def _time(self, statement: bytes, values: tuple[object, ...] = ()) -> float:
        began = time.perf_counter()
        self._cursor.execute(statement, values, binary=True).fetchall()
        return 1e6 * (time.perf_counter() - began)


@contextmanager
def open_reference(url: str) -> Iterator[Reference]:
    """Make the table in a migrated database, and connect."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLE)
        yield Reference(connection)


def measure_speed(server: DurableServer) -> Speed:
    """Run both statements in a database of their own."""
    with server.database() as url, open_reference(url) as reference:
        reference.measure(TIMES // 10)  # the plans, the first pages
        return reference.measure()
