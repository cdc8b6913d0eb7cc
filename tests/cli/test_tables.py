"""What the commands print fits the screen: captured at 80, 100 and 160 columns."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from rich.cells import cell_len

from rota.cli import run
from tests.cli.fleet import ERRORS, QUEUE, TYPES, WORKERS, open_shop
from tests.support.project import enter
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

WIDTHS = (80, 100, 160)
COMMANDS = {
    "jobs": ["jobs", "--limit", "12"],
    "job": ["job", "4102"],
    "stats": ["stats"],
    "stats_by_hour": ["stats", "--type", TYPES[0]],
    "queues": ["queues"],
    "workers": ["workers"],
    "types": ["types"],
    "schedules": ["schedules"],
    "schedule": ["schedules", "show", "nightly", "--next", "3"],
    "alerts": ["alerts"],
    "effects": ["effects"],
    "top": ["top", "--once"],
    "reschedule": ["reschedule", "4101", "4105", "--priority", "1"],
}
SNAPSHOTS = Path(__file__).parent / "tables"
"""Written again by WRITE_SNAPSHOTS=1: look at the difference before you commit it."""
WRITES = os.environ.get("WRITE_SNAPSHOTS") == "1"


@pytest.fixture(autouse=True)
def here(
    tmp_path: Path, database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A busy shop, seen from a machine whose clock is of another zone."""
    open_shop(connection)
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def capture(
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wide: int,
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(wide))
    assert run(arguments) == 0, capsys.readouterr()
    return capsys.readouterr().out.splitlines()


@rule("M3", "M85")
@pytest.mark.parametrize("name", COMMANDS)
def test_each_table_fits_the_screen(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for wide in WIDTHS:
        lines = capture(COMMANDS[name], capsys, monkeypatch, wide)
        assert [line for line in lines if cell_len(line) > wide] == []
        assert [line for line in lines if line != line.rstrip()] == []
        seen += [f"== {wide} columns ==", *lines, ""]
    text = "\n".join(seen)
    snapshot = SNAPSHOTS / f"{name}.txt"
    if WRITES:
        snapshot.write_text(text, encoding="utf-8")
    assert text == snapshot.read_text(encoding="utf-8"), (
        "the output changed: WRITE_SNAPSHOTS=1 writes the snapshot again"
    )


LONG = f"""
insert into rota.batch (total, succeeded, dead, on_failure, outcome, ended_at, then_at, then_job)
values (1234567, 1000000, 234567, 'continue', 'failed', rota.clock(), rota.clock(), 1234567);
insert into rota.rate_limit (name, starts, per, burst, changed_by, changed_at, changed_why)
values ('smtp-relay-of-the-marketing-department', 10000, '1 min', 1000, 'ada@example.com',
  rota.clock() - interval '3 h 20 min', '{ERRORS[0]}');
insert into rota.breaker (name, key, state, opened_at, reason, changed_by)
values ('partner-webhooks', 'api.partner-of-ours.example.com', 'open', rota.clock(), '{ERRORS[0]}',
  'grace.hopper@operations.example.com');
insert into rota.job (id, job_type, queue, priority, group_key, status, in_lane, failed_at,
  attempts, run_at, error_type, last_error)
values (1234567, '{TYPES[1]}', '{QUEUE}', 0, 'invoice:2031-05:customer-0001234567', 'failed', true,
  rota.clock(), 1, rota.clock() + interval '59 min', 'sqlalchemy.exc.OperationalError',
  '{ERRORS[0]}'),
  (1234568, '{TYPES[1]}', '{QUEUE}', 0, 'invoice:2031-05:customer-0001234567', 'waiting', null,
  null, 0, rota.clock(), null, null);
"""
LISTS = (
    ["jobs"], ["queues"], ["workers"], ["types"], ["schedules"], ["schedules", "show", "nightly"],
    ["alerts"], ["effects"], ["batches"], ["groups"], ["limits"], ["breakers"], ["stats"],
    ["stats", "--type", TYPES[0]], ["top", "--once"], ["job", "4102"], ["job", "1234567"],
    ["reschedule", "1234567", "--priority", "1"],
)  # fmt: skip


@rule("M3", "M85")
def test_no_row_of_a_list_is_folded_on_a_screen_of_80_columns_and_no_status_is_failed_alone(
    connection: Connection, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("set session_replication_role = replica")
    connection.execute(LONG.encode())
    for command in LISTS:
        lines = capture(command, capsys, monkeypatch, 80)
        rows = [line for line in lines if not line.startswith("  ") or command[0] != "top"]
        assert [line for line in rows if re.match(r"  \S", line)] == [], command
        assert max(map(cell_len, lines)) <= 80, command
        if command[0] not in ("top", "job"):  # where it is a count, or an event with its reason
            assert not re.search(
                r"\bfailed(?!, (retries|to be)| attempts)", " ".join(" ".join(lines).split())
            )
    [listed] = [line for line in capture(["jobs"], capsys, monkeypatch, 80) if "1234567" in line]
    assert "  failed, retries in 59 min  [Errno 111]" in listed, "the reason, not the module"


@rule("M3", "M85")
def test_no_type_is_cut_where_there_is_room_and_an_error_is_shortened_between_two_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for wide in (40, *WIDTHS):
        lines = capture(["jobs"], capsys, monkeypatch, wide)
        words = {word for line in lines for word in line.split()}
        assert wide < 100 or set(TYPES) <= words, wide
        [error] = [line for line in lines if "[Errno 111]" in line]
        whole = f"ConnectionRefusedError: {ERRORS[0]}"
        kept = error[error.index("Conn" if "RefusedError" in error else "[Errno") : -1]
        assert error.endswith("…") and kept in whole, (wide, error)
        assert whole[whole.index(kept) + len(kept)] in " :", (wide, error)
        assert "40 s" in " ".join(lines) and ("in 59 min" in " ".join(lines))


@rule("M85")
def test_in_a_pipe_a_row_is_one_line_and_nothing_is_shortened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["jobs"]) == 0
    titles, *lines = capsys.readouterr().out.splitlines()
    assert titles.split() == ["id", "type", "queue", "status", "attempts", "last", "error"]
    assert len(lines) == 20 and [line for line in lines if ERRORS[0] in line]
    assert run(["workers"]) == 0
    assert all(name in capsys.readouterr().out for name in WORKERS[:1])
    monkeypatch.setenv("COLUMNS", "nonsense")
    assert run(["queues"]) == 0
    assert QUEUE in capsys.readouterr().out


@rule("M85")
def test_a_column_without_a_value_is_left_out(
    connection: Connection, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [titles, *_] = capture(["jobs", "--status", "queued"], capsys, monkeypatch, 160)
    assert "last error" not in titles and "status" in titles


@rule("M85")
def test_with_utc_times_are_instants(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (
        ["jobs"],
        ["job", "4102"],
        ["workers"],
        ["schedules"],
        ["effects"],
        ["alerts"],
    ):
        plain = " ".join(capture(arguments, capsys, monkeypatch, 160))
        utc = " ".join(capture([*arguments, "--utc"], capsys, monkeypatch, 160))
        assert " ago" in plain and " ago" not in utc and "2031-05-10 " in utc, arguments
    shown = " ".join(
        " ".join(capture(["job", "4102", "--verbose"], capsys, monkeypatch, 160)).split()
    )
    assert "created at 2 h ago (2031-05-10 15:30:00+05:30)" in shown


@rule("M86")
def test_a_worker_is_alive_silent_gone_or_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (["workers"], ["top", "--once"]):
        text = "\n".join(capture(command, capsys, monkeypatch, 200))
        found = {
            line.split()[0]: line
            for line in text.splitlines()
            if line.split() and line.split()[0] in {*WORKERS, "cron-1-aa", "lost-1-bb"}
        }
        assert "  seen 4 s ago  " in found[WORKERS[0]]
        assert "  silent for 40 s  " in found[WORKERS[1]]
        assert "  stopped 50 s ago  " in found["cron-1-aa"]
        assert "  gone for 3 min  " in found["lost-1-bb"]
    run(["doctor", "--all"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 workers are alive; gone within the hour: lost-1-bb (silent for 3 min)" in shown


@rule("M85")
@pytest.mark.parametrize("asks", ["NO_COLOR", "a pipe"])
def test_nothing_is_coloured_that_nobody_sees(
    asks: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if asks == "NO_COLOR":
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert any("\x1b" in line for line in capture(["jobs"], capsys, monkeypatch, 80))
        monkeypatch.setenv("NO_COLOR", "1")
    for arguments in (["jobs"], ["top", "--once"], ["job", "4102"]):
        assert not any("\x1b" in line for line in capture(arguments, capsys, monkeypatch, 80))
