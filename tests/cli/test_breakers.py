"""`rota breakers` as a person reads it."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.cli import CommandLine
from tests.support.rules import rule

pytestmark = pytest.mark.system


@rule("M63")
def test_each_breaker_says_when_a_job_tries_next(
    rota: CommandLine, connection: psycopg.Connection[TupleRow]
) -> None:
    connection.execute(
        "insert into rota.breaker (name, key, state, opened_at, open_until, trial_job) values "
        "('call', 'a', 'open', now(), now() + interval '90 seconds', null), "
        "('call', 'b', 'open', now(), now() - interval '90 seconds', null), "
        "('call', 'c', 'open', now(), null, null), "
        "('call', 'd', 'trial', now(), now(), 7)"
    )
    lines = [line for line in rota.ok("breakers").out.splitlines() if line.startswith("call")]
    shown = {line.split()[1]: line for line in lines}
    for key, says in (
        ("a", " in "),
        ("b", "with its next job"),
        ("c", "once it is reset"),
        ("d", "job 7 tries"),
    ):
        assert says in shown[key]
