"""`rota doctor` as a command: its exit status, its order, and how a mistyped name looks
in it."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from rota.observe.doctor.checks import CHECKS
from tests.cli.here import Here
from tests.support.rules import rule
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]


@rule("M3", "M86")
def test_the_doctor_names_what_is_wrong_first_and_what_to_do(
    rota: Here, connection: Connection
) -> None:
    rota.ok("sync")
    rota.ok("work", "--drain")
    connection.execute(
        "insert into rota.job (job_type, queue) values ('send_mial', e'\\x1b[2Jlost')"
    )
    ran = rota("doctor")
    assert ran.status == 1 and "\x1b" not in ran.out
    lines = ran.out.splitlines()
    levels = [line.split()[0] for line in lines[:-1] if not line.startswith(" ")]
    assert levels == sorted(levels, key=["bad", "warn", "skipped"].index)
    assert "did you mean send_mail?" in ran.out
    assert "→ start a worker for it: rota work --queue" in ran.out
    assert lines[-1].endswith(" checks ok")
    said = rota("doctor", "--json")
    assert said.status == 1 and [check["name"] for check in said.json["checks"]] == [
        check.name for check in CHECKS
    ]
    assert said.json["counts"]["bad"] >= 2


@rule("M3")
def test_the_exit_status_of_the_doctor_distinguishes_warnings_from_what_is_bad(
    rota: Here, connection: Connection
) -> None:
    rota.ok("work", "--drain")
    connection.execute("alter table rota.worker add column x int")  # anything that is not bad

    def is_bad() -> tuple[int, list[str]]:
        ran = rota("doctor", "--json")
        return ran.status, [
            check["name"] for check in ran.json["checks"] if check["level"] == "bad"
        ]

    # Servers of tests run without autovacuum. On a busy machine a look may be given up after its
    # two seconds, or a notification be missed.
    eventually(lambda: is_bad() == (1, ["vacuum"]), 60, what="only that is bad")
    rota.environment["ROTA_DATABASE_URL"] = "postgresql://postgres@127.0.0.1:1/x"
    assert rota("doctor").status == 5
    rota.environment["ROTA_DATABASE_URL"] = "nonsense"
    assert rota("doctor").status == 3
