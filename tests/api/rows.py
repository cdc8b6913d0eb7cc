"""Rows of the tables, for tests that run jobs through the public API."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow, dict_row

from rota.observe.events import LoopBlocked


class Rows:
    """The rows of one database."""

    def __init__(self, connection: psycopg.Connection[TupleRow]) -> None:
        self._connection = connection

    def job(self, id_: int) -> dict[str, Any]:
        """The job's row of the view, with `wait_s`, the seconds from when it was last written until
        run_at.
        """
        found = self._all(
            "select *, extract(epoch from run_at - updated_at)::float8 as wait_s from rota.jobs "
            "where id = %s",
            id_,
        )
        assert len(found) == 1, found
        return found[0]

    def attempts(self, id_: int) -> list[dict[str, Any]]:
        """The rows of its attempts that did not succeed, the first one first."""
        return self._all(
            "select *, extract(epoch from next_run_at - finished_at)::float8 as wait_s from "
            "rota.attempt where job = %s order by claim",
            id_,
        )

    def keys(self) -> list[tuple[str, str, int]]:
        """Return the idempotency keys in use."""
        return self._connection.execute(
            "select job_type, key, job from rota.idempotency order by 1, 2"
        ).fetchall()

    def insert(self, job_type: str, payload: str = "{}", version: int | None = None) -> int:
        """Insert a job as another language would; return its id."""
        row = self._connection.execute(
            "insert into rota.job (job_type, payload, payload_version) values (%s, %s, %s) "
            "returning id",
            [job_type, payload, version],
        ).fetchone()
        assert row is not None
        return int(row[0])

    def make_all_due(self) -> None:
        """Make everything due that waits for its time."""
        self._connection.execute(
            "update rota.job set run_at = rota.clock() where status in ('queued', 'failed')"
        )

    def _all(self, query: str, id_: int) -> list[dict[str, Any]]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, [id_]).fetchall()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings in the log, but for that of a loop which did not turn for a second: a busy
    machine may be why.
    """
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING
        and not isinstance(getattr(record, "rota_event", None), LoopBlocked)
    ]
