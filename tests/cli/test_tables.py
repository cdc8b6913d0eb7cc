"""What the commands print fits the screen and says how it stands."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from rich.cells import cell_len

from tests.cli.fleet import ERROR, QUEUE, TYPES, WORKERS, open_shop
from tests.cli.here import Here
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

COMMANDS = (
    ["jobs"], ["job", "4102"], ["queues"], ["workers"], ["types"], ["schedules"],
    ["schedules", "show", "monthly-statements-for-all-customers-of-europe"], ["alerts"],
    ["effects"], ["batches"], ["groups"], ["limits"], ["breakers"], ["stats"],
    ["stats", "--type", TYPES[1]], ["top", "--once"], ["reschedule", "4101", "--priority", "1"],
)  # fmt: skip


@pytest.fixture
def rota(tmp_path: Path, database: str, connection: Connection) -> Here:
    """`rota`, and a busy shop."""
    open_shop(connection)
    return Here(tmp_path, ROTA_DATABASE_URL=database)


@rule("M3", "M85")
def test_each_table_fits_the_screen_and_names_each_type_where_there_is_room(rota: Here) -> None:
    rota.environment["COLUMNS"] = "80"
    for command in COMMANDS:
        lines = rota.ok(*command).out.splitlines()
        assert [line for line in lines if cell_len(line) > 80] == [], command
    rota.environment["COLUMNS"] = "100"
    assert set(TYPES) <= set(rota.ok("jobs").out.split())


@rule("M85")
def test_in_a_pipe_a_row_is_one_line_and_nothing_is_shortened(rota: Here) -> None:
    for columns in ("", "nonsense"):
        rota.environment["COLUMNS"] = columns
        titles, *lines = rota.ok("jobs").out.splitlines()
        assert titles.split()[:5] == ["id", "type", "queue", "status", "attempts"]
        assert len(lines) == 4 and [line for line in lines if ERROR in line]
    assert WORKERS[0] in rota.ok("workers").out and QUEUE in rota.ok("queues").out


@rule("M86")
def test_a_worker_is_alive_silent_gone_or_stopped(rota: Here) -> None:
    for command in (("workers",), ("top", "--once")):
        found = {
            words[0]: line for line in rota.ok(*command).out.splitlines() if (words := line.split())
        }
        assert "  seen 4 s ago  " in found[WORKERS[0]]
        assert "  silent for 40 s  " in found[WORKERS[1]]
        assert "  stopped 50 s ago  " in found["cron-1-aa"]
        assert "  gone for 3 min  " in found["lost-1-bb"]
    shown = " ".join(rota("doctor", "--all").out.split())
    assert "2 workers are alive; gone within the hour: lost-1-bb (silent for 3 min)" in shown
