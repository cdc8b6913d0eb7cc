"""An agent is called to an incident: the cause is in its first three answers."""

from __future__ import annotations

import json

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.cli.here import Here
from tests.cli.test_mcp import begin
from tests.doctor.test_doctor import at_work

Connection = psycopg.Connection[TupleRow]
DUE = (
    "insert into rota.job (job_type, queue, run_at) "
    "values ('{}', '{}', rota.clock() - interval '2 hours');"
)
INCIDENTS = {
    "a paused queue": (
        DUE.format("t", "default")
        + "insert into rota.queue (name, paused_at, paused_by, paused_why) "
        "values ('default', rota.clock(), 'eva', 'the move')",
        "the move",
    ),
    "a silent worker": (
        DUE.format("t", "default")
        + "update rota.worker set heartbeat_at = heartbeat_at - interval '2 minutes'",
        "no worker is alive",
    ),
    "an open breaker": (
        "insert into rota.breaker (name, key, state, opened_at, reason) values "
        "('charge', 'a.example', 'open', rota.clock() - interval '16 minutes', 'timeout')",
        "charge a.example",
    ),
    "a mistyped type": (DUE.format("send_welcom_email", "default"), "did you mean send_welcome"),
    "a forgotten import": (
        "update rota.worker set job_types = '{other}';" + DUE.format("t", "default"),
        "no worker knows it",
    ),
    "a queue without a worker": (DUE.format("t", "emails"), "'emails'"),
    "a worker that is refused": (
        "update rota.worker set refused = 'no key', "
        "refused_since = rota.clock() - interval '2 min'",
        "no key",
    ),
    "an uncertain effect": (
        "insert into rota.effect (key, job, claim, entry, if_uncertain, intended_at) "
        "values ('charge:7', 7, 1, 1, 'dead', rota.clock() - interval '2 days')",
        "charge:7",
    ),
    "a halted group": (
        "insert into rota.job (job_type, status, group_key, in_lane, failed_at, waits_for, "
        "waits_since) values ('t', 'dead', 'invoice:42', true, rota.clock(), 'person', "
        "rota.clock() - interval '5 minutes')",
        "invoice:42",
    ),
    "a schedule that cannot run": (
        "insert into rota.schedule (name, job_type, cron, paused_at, paused_by, paused_why, "
        "refused) values ('nightly', 't', '0 2 * * *', rota.clock(), 'rota', 'no such type', true)",
        "paused by Rota: nightly (no such type)",
    ),
    "a full limit": (
        "insert into rota.job (job_type, waits_for, waits_since, run_at) values "
        "('t', 'limit smtp b', rota.clock(), rota.clock() + interval '90 minutes')",
        "limit smtp b",
    ),
}
"""What happens, in SQL, and the words that name the cause."""


@pytest.mark.nightly
async def test_what_an_error_of_dead_jobs_is_stands_in_the_first_three_answers(rota: Here) -> None:
    for day in ("2026-01-14", "2026-01-15"):
        payload = f'{{"day": "{day}"}}'
        rota.ok("enqueue", "report", "--payload", payload, "--max-attempts", "1")
    assert rota.apart("work", "--drain").status == 0
    async with begin(rota) as agent:
        [overview, doctor] = [await agent.ask(tool) for tool in ("overview", "doctor")]
        assert "2 dead jobs" in json.dumps([overview, doctor])
        [error] = (await agent.ask("errors"))["errors"]
    assert error["error_type"] == "ValueError" and error["dead"] == 2


@pytest.mark.nightly
@pytest.mark.parametrize("incident", INCIDENTS)
async def test_the_cause_of_an_incident_is_in_the_first_three_answers(
    rota: Here, connection: Connection, incident: str
) -> None:
    at_work(connection)
    statements, cause = INCIDENTS[incident]
    connection.execute(statements.encode())
    async with begin(rota) as agent:
        answers = [await agent.ask(tool) for tool in ("overview", "doctor", "errors")]
    assert cause in json.dumps(answers, ensure_ascii=False), (incident, answers)
