"""`rota check`, as a monitoring system runs it, and `rota alerts`."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tests.cli.here import Here
from tests.support.rules import rule

DEAD = (
    "insert into rota.job (job_type, queue, priority, status, failed_at)"
    " select 't', 'default', 0, 'dead', rota.clock() from generate_series(1, 10)"
)
ATTEMPTS = (
    "insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, outcome, "
    "error_type)"
    " select n, 1, 1, 'mail', 'w', rota.clock(), 'failed', E'Odd|Error\\nOK - all is well' "
    "from generate_series(1, 25) n"
)
Connection = psycopg.Connection[TupleRow]


@rule("M86")
def test_check_says_in_one_line_what_is_wrong_and_exits_as_plugins_do(
    rota: Here, connection: Connection
) -> None:
    well = rota("check")
    assert (well.status, well.err) == (0, "")
    assert well.out.startswith("OK - 15 rules, nothing found | 'breaker open'=0 'dead jobs'=0 ")

    connection.execute(ATTEMPTS)
    warning = rota("check")
    assert warning.status == 1
    assert warning.out.startswith("WARNING - same error: 25 different jobs failed with Odd/Error")
    assert warning.out.count("\n") == 1 and warning.out.count("|") == 1

    connection.execute(DEAD)
    critical = rota("check")
    assert critical.status == 2
    assert critical.out.startswith(
        "CRITICAL - dead jobs: 10 jobs died within 01:00:00 and wait for a person: t (10); "
        "same error: "
    )
    assert "'dead jobs'=10 'dead jobs grow'=0 " in critical.out
    assert re.fullmatch(r"[^|\n]+\| ('[^'=|]+'=[0-9.e+]+ ?)+\n", critical.out)


@rule("M86", "M87")
def test_check_is_critical_in_a_restored_copy_where_nothing_runs(
    rota: Here, connection: Connection
) -> None:
    connection.execute(
        "update rota.installation set database_name = 'shop', worked_at = rota.clock()"
    )
    said = rota("check")
    assert said.status == 2
    assert "nothing runs until `rota queues resume --copy`: recorded as database shop" in said.out


@rule("M86")
def test_check_of_one_rule_looks_at_no_other_and_goes_by_the_table(
    rota: Here, connection: Connection
) -> None:
    connection.execute(DEAD)
    assert rota("check", "--rule", "same error").status == 0
    connection.execute("update rota.alert_rule set critical_from = 11 where name = 'dead jobs'")
    found = rota("check", "--rule", "dead jobs", "--json")
    assert found.status == 1
    assert found.json["status"] == "warning"
    [checked] = found.json["rules"]
    [finding] = checked["findings"]
    assert (checked["name"], finding["value"], finding["severity"]) == ("dead jobs", 10, "warning")
    connection.execute("update rota.alert_rule set at_least = 11 where name = 'dead jobs'")
    assert rota("check", "--rule", "dead jobs").status == 0


@rule("M86")
def test_check_is_critical_without_a_database_and_unknown_where_it_cannot_ask(
    rota: Here,
) -> None:
    away = rota("check", "--url", "postgresql://127.0.0.1:9/none", "--schema", "rota")
    assert (away.status, away.err) == (2, "")
    assert (
        away.out.startswith("CRITICAL - the database does not answer") and away.out.count("\n") == 1
    )
    for arguments in (["--rule", "no such"], ["--schema", "elsewhere"]):
        unknown = rota("check", *arguments)
        assert unknown.status == 3
        assert unknown.out.startswith("UNKNOWN - ") and unknown.out.count("\n") == 1
    assert rota("check", "--rule", "no such", "--json").json["status"] == "unknown"


@rule("M86")
def test_check_runs_as_a_role_that_may_only_read_and_sends_nothing(
    rota: Here, database: str, connection: Connection
) -> None:
    role = f"my_monitor_{uuid4().hex[:8]}"
    connection.execute(f"create role {role} nologin".encode())
    grant = f"grant usage on schema rota to {role}; grant select on rota.alert_rule to {role}"
    connection.execute(grant.encode())
    try:
        connection.execute(DEAD)
        read_only = make_conninfo(
            database, options=f"-c role={role} -c default_transaction_read_only=on"
        )
        found = rota("check", "--url", read_only)
        assert (found.status, found.out[:8]) == (2, "CRITICAL"), found
        assert connection.execute("select * from rota.alert").fetchall() == []
    finally:
        connection.execute(f"drop owned by {role}; drop role {role}".encode())


@rule("M86")
def test_alerts_lists_the_rules_and_what_stands(rota: Here, connection: Connection) -> None:
    connection.execute(DEAD)
    connection.execute("update rota.alert_rule set enabled = false where name = 'same error'")
    connection.execute(
        "insert into rota.alert_rule (name, kind, period, job_type) "
        "values ('dead invoices', 'dead', '1 day', 'invoice')"
    )
    connection.execute("update rota.alert_rule set queue = 'email' where name = 'no worker'")
    rota.ok("work", "--drain")
    listed = rota.ok("alerts")
    lines = [line.split() for line in listed.out.splitlines()]
    assert ["dead", "invoices", "dead", "invoice", "1"] in [line[:5] for line in lines]
    assert ["no", "worker", "no_worker", "email", "1"] in [line[:5] for line in lines]
    assert "unclaimed jobs" in listed.out and "10 jobs died within 01:00:00" in listed.out
    facts = rota.ok("alerts", "--json").json
    assert [
        (alert["rule"], alert["state"], alert["notifications"]) for alert in facts["alerts"]
    ] == [("dead jobs", "fires", 1)]
    assert {rule["name"]: rule["enabled"] for rule in facts["rules"]}["same error"] is False
    assert {rule["name"]: rule["period_s"] for rule in facts["rules"]}["dead jobs"] == 3600


@rule("M73")
def test_check_of_the_types_needs_no_database_and_its_hints_fail_nothing(tmp_path: Path) -> None:
    (tmp_path / "hinted.py").write_text(
        "import rota\napp = rota.App('postgresql://nowhere.invalid/x')\n\n\n"
        "@app.job\ndef send_mail(n: int) -> None: ...\n"
    )
    rota = Here(tmp_path, ROTA_APP="hinted:app")
    found = rota.ok("check", "--types", "--json").json
    assert (found["status"], found["rules"], found["error"]) == ("ok", [], None)
    assert {hint["job_type"] for hint in found["hints"]} == {"send_mail"}
    assert f"{tmp_path}/hinted.py:5: 'send_mail' " in rota.ok("check", "--types").out
    assert rota("check", "--types", "--app", "hintd:app").status == 3
    assert rota("check", "--types", "--rule", "dead jobs").status == 2
