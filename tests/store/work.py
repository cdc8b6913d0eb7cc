"""A worker reduced to its statements: to claim, settle and renew at the store, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from rota.model.job import Action, Job, Status
from rota.model.outcome import Failure
from rota.model.settle import Transition
from rota.store import ops
from rota.store.db import Database
from rota.store.driver import Operation, drive
from rota.store.drivers.psycopg3 import PsycopgDriver
from tests.support.wait import eventually

T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

FAILURE = Failure("OSError", "no route to host", "transient", "default", None, "a stack")
SUCCEED = Transition("succeed", Status.SUCCEEDED)
CANCEL = Transition("cancel", Status.CANCELLED, reason="not needed")
FAIL = Transition("retry", Status.FAILED, delay_s=60.0, failure=FAILURE)
GIVE_UP = Transition("give_up", Status.DEAD, failure=FAILURE)
SNOOZE = Transition("snooze", Status.QUEUED, charged=False, delay_s=60.0)
HAND_BACK = Transition("hand_back", Status.QUEUED, charged=False)
PAYLOAD_MISMATCH = Transition(
    "hand_back",
    Status.QUEUED,
    charged=False,
    failure=Failure("PayloadError", "does not fit", "fatal", "payload mismatch"),
    payload_mismatch=True,
)


def waits(connection: Connection, own: Connection) -> Callable[[], bool]:
    """Whether the session of `own` waits for a lock, asked on the other connection."""
    pid = own.info.backend_pid
    query = "select cardinality(pg_blocking_pids(%s)) > 0"
    return lambda: connection.execute(query, [pid]).fetchone() == (True,)


def after_it_waited(
    connection: Connection,
    own: Connection,
    doing: Callable[[], T],
    ending: Callable[[], object],
) -> T:
    """Act on `own`, which waits for a lock; release the lock; return the result."""
    with ThreadPoolExecutor(1) as pool:
        done: Future[T] = pool.submit(doing)
        eventually(waits(connection, own), what="it waits for the other's lock")
        ending()
        return done.result(30)


def count(connection: Connection) -> int:
    """How many jobs others see."""
    return int(fetch(connection, "select count(*) from rota.job")[0])


def fetch(connection: Connection, query: str) -> TupleRow:
    [row] = connection.execute(query.encode()).fetchall()
    return row


@dataclass
class Hand:
    """What one worker does at the store, on a connection of its own."""

    connection: Connection
    name: str = "hand"
    release: str = "1"
    types: Sequence[str] = ("t",)
    lease: timedelta = timedelta(seconds=60)
    leases: Sequence[timedelta] = ()
    """One per type; empty: `lease` for each."""
    records: Sequence[str] = ()
    """Types whose starts are recorded before they begin."""
    queues: Sequence[str] = ("default",)
    priorities: Sequence[int] = (0,)
    schema: str = "rota"
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        # Only its statements: everything runs on `connection`.
        self.database = Database("", self.schema)

    @property
    def who(self) -> ops.Claimant:
        leases = list(self.leases) or [self.lease] * len(self.types)
        return ops.Claimant(
            self.name,
            self.release,
            list(self.types),
            leases,
            [name in self.records for name in self.types],
        )

    def run(self, operation: Operation[T]) -> T:
        """Run an operation on the connection. Raises StoreError."""
        return drive(PsycopgDriver(self.connection), operation, self.database.statements)

    def claim(
        self,
        limit: int = 100,
        *,
        after: datetime = BEGINNING,
        after_id: int = 0,
        known: dict[str, list[int]] | None = None,
        refused: Sequence[int] | None = (),
    ) -> ops.Claimed:
        """Claim what is due after a frontier, the same for all branches; None: everything."""
        wide, branches = len(self.priorities), len(self.queues) * len(self.priorities)
        where = ops.Branches(
            [limit],
            [limit],
            [1],
            [0],
            [branches],
            [queue for queue in self.queues for _ in range(wide)],
            sorted(self.priorities, reverse=True) * len(self.queues),
            [after] * branches,
            [after_id] * branches,
            [timedelta(0)] * branches,
        )
        return self.run(
            ops.claim(self.who, where, dict.fromkeys(self.queues, BEGINNING), known, refused)
        )

    def settle(
        self, *decided: tuple[Job, Transition], ran_s: float | None = 0.5
    ) -> dict[int, ops.Written]:
        """Write what became of jobs, as a finisher does: those that are over, then the others."""
        endings = [ops.Ending(job, transition, ran_s) for job, transition in decided]
        over = [ending for ending in endings if ending.transition.status.is_over]
        others = [ending for ending in endings if not ending.transition.status.is_over]
        settled: dict[int, ops.Written | ops.Refused] = {}
        if over:
            settled |= self.run(ops.finish(over, self.release))
        if others:
            settled |= self.run(ops.leave(others, self.release))
        written = {
            job: outcome for job, outcome in settled.items() if isinstance(outcome, ops.Written)
        }
        assert len(written) == len(settled), settled
        return written

    def record(self, result: ops.EndpointResult) -> ops.Recorded:
        """Tell a breaker what attempts say."""
        recorded = self.run(ops.record_at_breakers([result]))
        assert isinstance(recorded, list)
        return recorded[0]

    def renew(self, *jobs: Job) -> set[int]:
        return self.run(ops.renew([(job.id, job.claims) for job in jobs], self.who)).held

    def start(self, *jobs: Job) -> set[int]:
        """Record starts; the ids of those that were."""
        return {
            id_
            for id_, recorded in self.run(
                ops.start([(job.id, job.claims, False) for job in jobs])
            ).items()
            if recorded is True
        }

    def reap(self, limit: int = 500, steady_s: float | None = None) -> list[ops.Reaped]:
        """Take expired jobs from their workers."""
        return self.run(ops.reap(BEGINNING, limit, steady_s))[1]

    def send_heartbeat(self, **facts: Any) -> None:
        row = {
            "name": self.name,
            "host": "h",
            "pid": 1,
            "version": "1",
            "release": self.release,
            "job_types": list(self.types),
            "queues": "{}",
        }
        self.run(ops.write_heartbeat({**row, "running": 0, **facts}))


def make_branches(*queues: str, priorities: Sequence[int] = (0,), room: int = 10) -> ops.Branches:
    """Where a claim would look: one group of slots for each queue."""
    wide = len(priorities)
    lo = [1 + at * wide for at in range(len(queues))]
    hi = [at + wide - 1 for at in lo]
    count = wide * len(queues)
    return ops.Branches(
        jobs=[room] * len(queues),
        ordinary=[room] * len(queues),
        lo=lo,
        urgent_hi=[at - 1 for at in lo],
        hi=hi,
        queues=[queue for queue in queues for _ in priorities],
        priorities=sorted(priorities, reverse=True) * len(queues),
        after_run_at=[BEGINNING] * count,
        after_id=[0] * count,
        depths=[timedelta(0)] * count,
    )


def insert(connection: Connection, count: int = 1, **columns: Any) -> list[int]:
    """Insert jobs alike; their ids."""
    given = {"job_type": "t", "queue": "default", "priority": 0, **columns}
    values = ", ".join(f"%({name})s" for name in given)
    done = connection.execute(
        (
            f"insert into rota.job ({', '.join(given)}) select {values} from generate_series(1, "
            f"{count}) returning id"
        ).encode(),
        given,
    )
    return [row[0] for row in done.fetchall()]


def expire(connection: Connection) -> None:
    connection.execute(
        "update rota.job set locked_until = rota.clock() - interval '1 s' where status = 'running'"
    )


def drop_days(connection: Connection, *tables: str) -> None:
    """Drop the partitions of these tables, as if nobody had made them in time."""
    days = connection.execute(
        "select inhrelid::regclass::text from pg_inherits where inhparent = any (%s::regclass[])",
        [[f"rota.{table}" for table in tables]],
    ).fetchall()
    assert days
    for (day,) in days:
        connection.execute(f"drop table {day}".encode())


def act(
    action: Action, *ids: int, why: str | None = None, by: str = "tester"
) -> Operation[list[ops.Answer]]:
    """Do something to jobs, as a person does."""
    moved = ops.Moved(priority=0) if action is Action.RESCHEDULE else None
    request = ops.ActionRequest(action, by, why, moved=moved)
    answers, refusals = yield from ops.act_on_many(request, ids)
    assert refusals == {}
    return answers
