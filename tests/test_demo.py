"""`rota demo`, as `make demo` runs it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import LiteralString

import psutil
import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.cli import CommandLine
from tests.support.wait import eventually
from tests.worker.supervisor import gone

pytestmark = [pytest.mark.system, pytest.mark.slow]

Connection = psycopg.Connection[TupleRow]
WAIT_S = 60


@pytest.fixture
def rota(tmp_path: Path, database: str) -> CommandLine:
    return CommandLine(tmp_path, ROTA_DATABASE_URL=database, TMPDIR=str(tmp_path))


def workers_of(url: str) -> list[psutil.Process]:
    """Return the demo's workers on that database, however they were started."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if "rota.demo.jobs:app" in (process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("ROTA_DATABASE_URL") == url
    ]


@contextmanager
def held(rota: CommandLine, line: str) -> Iterator[psutil.Process]:
    """A demo that has come as far as to print that line, and is stopped as soon as that is read."""
    with rota.start("demo") as process:
        assert process.stdout
        for said in process.stdout:
            if re.search(line, said):
                break
        else:
            raise AssertionError(f"the demo ended before it said {line!r}")
        demo = psutil.Process(process.pid)
        demo.suspend()
        yield demo


def test_the_demo_keeps_its_promises_twice_in_a_row_and_leaves_nothing_behind(
    rota: CommandLine, database: str, connection: Connection
) -> None:
    ran = rota.ok("demo", "--json").json
    assert ran["ok"] and len(ran["checks"]) == 15 and all(check["ok"] for check in ran["checks"])
    by_select = {check["select"]: tuple(check["result"]) for check in ran["checks"]}
    for select, result in by_select.items():
        assert connection.execute(select.encode()).fetchone() == result
    rota.environment["COLUMNS"] = ""  # as in a pipe
    shown = rota.ok("demo").out
    table = shown[shown.index("\npromise ") :]
    assert max(map(len, table.splitlines())) <= 80
    assert "15 of 15 as expected" in shown
    assert workers_of(database) == [] and list(rota.directory.iterdir()) == []


# One of those who sign up stays without a mark that a mail was sent to them, whenever the demo
# makes its tables.
BROKEN: LiteralString = """
create function public.forget() returns event_trigger language plpgsql as $$
begin
  if exists (select from pg_event_trigger_ddl_commands()
    where object_identity = 'rota_demo_app.app_user') then
    create rule forget as on update to rota_demo_app.app_user
      where old.email = 'new7@shop.example' do instead nothing;
  end if;
end $$;
create event trigger forget on ddl_command_end when tag
  in ('CREATE TABLE') execute function public.forget();
"""


def test_a_promise_that_is_broken_is_named_and_the_exit_status_says_so(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(BROKEN)
    ran = rota("demo")
    assert ran.status == 1
    assert "WRONG, expected 20" in ran.out and "14 of 15 as expected" in ran.out


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_no_process_is_left_when_the_demo_is_ended_half_way(
    rota: CommandLine, database: str, how: str
) -> None:
    with held(rota, "^worker 1") as demo:
        [worker] = workers_of(database)
        getattr(demo, how)()
        with suppress(psutil.NoSuchProcess):  # a kill ends it while it is held
            demo.resume()
        eventually(lambda: gone(worker), WAIT_S, what="the worker noticed that its demo is gone")
    assert workers_of(database) == []


def test_the_demo_refuses_to_drop_tables_that_it_did_not_make(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "create schema rota_demo_app; create table rota_demo_app.invoice (id int); create view "
        "rota_demo_app.due as select 1"
    )
    status, sentence = rota("demo").error
    assert status == 3 and sentence.endswith(
        "not its own: rota_demo_app.due, rota_demo_app.invoice"
    )
    connection.execute(
        "drop schema rota_demo_app cascade; create schema rota_demo; create table rota_demo.job "
        "(id int)"
    )
    assert rota("demo").error[1].endswith("not its own: rota_demo.job")
    connection.execute(
        "drop table rota_demo.job; create function rota_demo.mine() returns int language sql as "
        "'select 1'"
    )
    assert "does not drop what it did not create" in rota("demo").error[1]
    assert connection.execute("select rota_demo.mine()").fetchone() == (1,)


def test_a_table_among_the_demos_own_stops_the_next_demo_and_so_does_another_demo_at_work(
    rota: CommandLine, connection: Connection
) -> None:
    with held(rota, "^worker 1") as demo:
        assert rota("demo").error == (3, "another `rota demo` is running in this database")
        demo.kill()
    connection.execute("create table rota_demo_app.mine (id int)")
    eventually(lambda: "another" not in (said := rota("demo").error[1]) and said, WAIT_S)
    assert rota("demo").error[1].endswith("not its own: rota_demo_app.mine")


def test_the_demo_uses_no_database_that_it_was_not_given(tmp_path: Path) -> None:
    assert not [name for name in os.environ if name.startswith("ROTA_")]
    assert CommandLine(tmp_path, DATABASE_URL="postgresql://elsewhere/")("demo").error[0] == 3
