"""A client on one connection, for a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar, Unpack

from rota.client import Client, DirectClient
from rota.errors import SchemaError
from rota.model.alert import AlertMatch
from rota.model.batch import Batch
from rota.model.bounds import COUNT_MAX
from rota.model.job import Job
from rota.model.schedule import Run
from rota.store import ops
from rota.store.db import Database, RunOptions
from rota.store.driver import Operation
from rota.store.ops import ActionRequest, Answer, Behind

T = TypeVar("T")
LOOK_MS = 3_000
"""Longest statement of a read-only session, in milliseconds."""


class Session(DirectClient):
    """All calls of a client, and the calls that only the command line has."""

    def __init__(self, database: Database, connection: Any, owner: Client | None = None) -> None:
        """`owner`: the App of the command, if it has one."""
        super().__init__(database)
        self.connection = connection
        self._owner = owner

    def _declares_queue(self, name: str) -> bool:
        return self._owner is not None and self._owner._declares_queue(name)

    def run(
        self, operation: Operation[T], connection: Any = None, **options: Unpack[RunOptions]
    ) -> T:
        """Run an operation on the connection, with `atomic` in one transaction."""
        own = self.connection if connection is None else connection
        return self._database.run(operation, own, **options)

    _run = run  # no loop runs here

    def read_clock(self) -> datetime:
        return self.run(ops.read_clock())

    def read_table(
        self, name: str, params: dict[str, Any] | None = None, *, columns: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Read an overview: workers, job_types or alert_rules."""
        return self.run(ops.table(name, params, columns=columns))

    def read_top(self, limits: dict[str, Any]) -> dict[str, Any]:
        """Read a frame of the live view, with a limit for each kind."""
        return self.run(ops.read_top(limits))

    def find_alert_matches(self, rule: str) -> list[AlertMatch]:
        """Read what an alert rule finds now."""
        return self.run(ops.find_alert_matches(rule))

    def explain(self, jobs: Sequence[Job]) -> list[Job]:
        """Return jobs with what holds them back; as they are, if the role reads the view only."""
        try:
            with self.connection.transaction():
                return self.run(ops.explain(jobs))
        except SchemaError:
            return list(jobs)

    def find_by_ids(self, ids: Sequence[int]) -> list[Job]:
        """Find jobs, live and finished, by their ids; those of which nothing is kept are left out,
        the newest comes first."""
        return self.run(ops.find(ids=list(ids), limit=len(ids)))

    def find_inner_batches(self, parent: int, limit: int) -> list[Batch]:
        """List the batches in a batch, the oldest first."""
        return self.run(ops.ask_rows(Batch, "batches_inner", parent=parent, limit=limit))

    def count_live_members(self, batch: int) -> dict[str, int]:
        """Count the jobs of a batch that are not over, by status, up to COUNT_MAX in all."""
        return dict(self.run(ops.count_live_members(batch, COUNT_MAX)))

    def read_last_runs(self, schedules: int, runs: int) -> dict[str, list[Run]]:
        """Read the last runs of the first schedules, by name, the newest first."""
        return self.run(ops.last_runs(schedules, runs))

    def act(self, request: ActionRequest, ids: list[int]) -> tuple[list[Answer], dict[int, str]]:
        """Act on jobs in batches of 1,000; return the answers, and why jobs were refused."""
        return self.run(ops.act_on_many(request, ids))

    def ids_behind(self) -> list[Behind]:
        """List the sequences behind their ids, which `queues.resume_copy` moves."""
        return self.run(ops.ask_rows(Behind, "ids_behind", limit=None))


@contextmanager
def open_session(app: Client, *, is_read_only: bool) -> Iterator[Session]:
    """Open a session on a connection of an App's pool, in one transaction. A read-only session has
    statements of at most `LOOK_MS`."""
    with app._database.lend() as connection:
        if is_read_only:
            connection.execute(b"set transaction read only")
            connection.execute(b"set local statement_timeout = %d" % LOOK_MS)
        yield Session(app._database, connection, app)
