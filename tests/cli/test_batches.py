"""Batches on the command line."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.cli import CommandLine
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def batches(connection: Connection) -> Connection:
    """Batch 1 has ended, and job 9 follows it; of batch 2 two of four jobs are over."""
    connection.execute(
        "insert into rota.batch (total, succeeded, dead, on_failure, outcome, ended_at, then_at, "
        "then_job, created_at) values "
        "(3, 2, 1, 'continue', 'failed', now(), now(), 9, now()), "
        "(4, 1, 0, 'wait', null, null, null, null, now())"
    )
    connection.execute("insert into rota.batch_delta (batch, cancelled) values (2, 1)")
    connection.execute("insert into rota.batch_part values (2, 1, 4)")
    connection.execute("insert into rota.job (job_type, batch) values ('t', 2), ('t', 2)")
    return connection


@pytest.mark.nightly
@rule("M72")
@pytest.mark.usefixtures("batches")
def test_batches_are_listed_and_one_is_shown(rota: CommandLine) -> None:
    listed = rota.ok("batches", "--json").json["batches"]
    assert [(one["id"], one["total"], one["succeeded"]) for one in listed] == [(2, 4, 1), (1, 3, 2)]
    shown = rota.ok("batches").out
    assert "job 9" in shown
    page = rota.ok("batches", "--limit", "1")
    assert page.err.strip() == "next page: --before 2"
    assert rota.ok("batches", "--limit", "2").err == ""
    assert [one["id"] for one in rota.ok("batches", "--before", "2", "--json").json["batches"]] == [
        1
    ]
    assert "2 of 4 have ended" in rota.ok("batches", "show", "2").out
    assert "failed" in rota.ok("batches", "show", "1").out
    assert rota.ok("batches", "show", "2", "--json").json["cancelled"] == 1
    assert "no batch 7" in rota("batches", "show", "7").err
    assert "batch" in rota.ok("job", "1").out
    members = rota.ok("jobs", "--batch", "2", "--json").json["jobs"]
    assert [one["id"] for one in members] == [2, 1]
    assert "last 24 h" not in rota.ok("jobs", "--batch", "2").err


@rule("M72", "M87")
@pytest.mark.usefixtures("batches")
def test_a_batch_is_cancelled(rota: CommandLine, connection: Connection) -> None:
    said = rota.ok("batches", "cancel", "2", "--why", "not needed").out
    assert said == "cancelled, or asked to stop: 2 jobs\n"
    assert rota.ok("batches", "show", "2", "--json").json["cancelled"] == 3
    whys = connection.execute("select distinct why from rota.action").fetchall()
    assert whys == [("not needed",)]
