"""`rota top`: in a terminal of its own, and as one frame into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.cli.frame import Rates, frame
from rota.store.db import Database
from rota.store.migrate import migrate
from rota.store.probe import open_probe
from tests.store.work import FAIL, SUCCEED, Hand, insert
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer

Connection = psycopg.Connection[TupleRow]
FRAME = {"queues": 100, "counted": 1_000, "held": 10_000, "batches": 10, "listed": 50}


class Terminal:
    """A command in a terminal: what it has drawn, keys, and the terminal's settings."""

    def __init__(
        self, url: str, *arguments: str, size: tuple[int, int] = (40, 160), kind: str = "xterm"
    ) -> None:
        self.screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rota", "top", "--every", "0.5", *arguments],
            env={**os.environ, "ROTA_DATABASE_URL": url, "TERM": kind},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        self.drawn = ""

    def until(self, what: str, timeout_s: float = 30) -> None:
        """Wait until something new that it draws has this in it."""
        deadline, seen = time.monotonic() + timeout_s, ""
        while what not in seen:
            ready, _, _ = select.select(
                [self.screen], [], [], max(0.0, deadline - time.monotonic())
            )
            assert ready, f"{what!r} was not drawn: {seen[-2000:]}"
            seen += os.read(self.screen, 65536).decode(errors="replace")
            self.drawn += seen

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self.screen, keys.encode())

    def ends(self) -> int:
        """Wait for its end; its exit status. What it left of the terminal is asserted: settings,
        cursor, the other screen."""
        self.until("\x1b[?1049l")
        status = self.process.wait(30)
        while select.select([self.screen], [], [], 0)[0]:
            self.drawn += os.read(self.screen, 65536).decode(errors="replace")
        assert termios.tcgetattr(self.theirs) == self.before
        assert self.drawn.rindex("\x1b[?25h") > self.drawn.rindex("\x1b[?25l")
        return status


@contextmanager
def terminal(url: str, *arguments: str, **options: Any) -> Iterator[Terminal]:
    """A terminal that does not outlive its test."""
    opened = Terminal(url, *arguments, **options)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.screen)
        os.close(opened.theirs)


@pytest.mark.system
@rule("M85")
def test_the_live_view_follows_the_jobs_and_leaves_the_terminal_as_it_was(
    database: str, connection: Connection
) -> None:
    hand = Hand(connection)
    hand.send_heartbeat(slots=10, queues='{"default": null}')
    with terminal(database) as shown:
        shown.until("workers 1")
        [id_] = insert(connection)
        shown.until("due 1")
        [job] = hand.claim().jobs
        hand.send_heartbeat(running=1)
        shown.until("running 1")
        assert str(id_) in shown.drawn
        hand.settle((job, FAIL))
        shown.until("no route to host")
        shown.press("q")
        assert shown.ends() == 0
    hand.send_heartbeat(running=1)  # a worker counts as alive for a minute after
    with terminal(database, size=(5, 30)) as small:
        small.until("workers 1"[:4])
        small.process.send_signal(signal.SIGINT)
        assert small.ends() == 0
    hand.send_heartbeat(running=1)
    with terminal(database, kind="dumb") as printing:
        printing.until("workers 1")
        assert printing.process.wait(30) == 0


@pytest.mark.system
@rule("M85", "M2")
def test_the_live_view_outlives_a_restart_of_the_database(own_server: PostgresServer) -> None:
    migrate(own_server.url())
    with terminal(own_server.url()) as shown:
        shown.until("due 0")
        own_server.stop()
        shown.until("trying again")
        own_server.start()
        shown.until("due 0")
        shown.process.send_signal(signal.SIGTERM)
        assert shown.ends() == 128 + signal.SIGTERM


@pytest.mark.system
@rule("M85")
def test_one_frame_goes_into_a_pipe(rota: CommandLine, connection: Connection) -> None:
    hand = Hand(connection)
    hand.send_heartbeat(slots=10, running=1, succeeded=7)
    insert(connection, 2, job_type="\x1b[2Jt")
    insert(connection, job_type="t")
    [job] = hand.claim().jobs
    out = rota.ok("top", "--once").out
    assert "due 2 · running 1 · workers 1" in out and f"{job.id}   t" in out and "\x1b" not in out
    assert "hand" in out and "1/10" in out
    assert rota.ok("top", "--json").json["running"][0]["id"] == job.id
    hand.settle((job, SUCCEED))
    connection.execute("select rota.pause_all()")
    assert rota.ok("top", "--once").out.startswith("EVERYTHING IS PAUSED · due 2")
    rota.environment["ROTA_DATABASE_URL"] = "postgresql://postgres@127.0.0.1:1/x"
    assert rota("top", "--once").status == 5


@rule("M85", "M15")
def test_jobs_of_a_worker_in_another_language_are_counted_and_its_rate_is_unknown(
    rota: CommandLine, connection: Connection
) -> None:
    insert(connection, 3, job_type="t", queue="d")
    held = connection.execute(
        "select id, claims from rota.claim('d', '{t}', 'shell', 3)"
    ).fetchall()
    [worker] = rota.ok("workers", "--json").json["workers"]
    assert (worker["name"], worker["running"]) == ("shell", 3)
    connection.execute("select rota.succeed(%s, %s)", held[0])
    connection.execute("update rota.worker set heartbeat_at = heartbeat_at - interval '6 s'")
    connection.execute("select rota.renew(%s, %s)", held[1])
    [worker] = rota.ok("workers", "--json").json["workers"]
    assert worker["running"] == 2
    out = rota.ok("top", "--once").out
    assert "running 2 · workers 1" in out
    [shown] = [line.split() for line in out.splitlines() if line.startswith("  shell ")]
    assert (shown[1], shown[-5:]) == ("seen", ["2", "-", "-", "-", "unknown"])
    [worker] = rota.ok("top", "--json").json["workers"]
    assert (worker["running"], worker["succeeded"], worker["failed"], worker["dead"]) == (
        2,
        None,
        None,
        None,
    )


@rule("M85")
def test_a_frame_reads_no_more_of_many_jobs_than_of_few(
    database: str, connection: Connection
) -> None:
    insert(connection, 200_000)
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, failed_at) "
        "select 't', 'd', 0, 'dead', now() from generate_series(1, 20000)"
    )
    connection.execute(
        "insert into rota.batch (total, on_failure, outcome) "
        "select 9, 'continue', case when n > 2000 then 'failed' end "
        "from generate_series(1, 20000) n"
    )
    connection.execute(
        "insert into rota.batch_delta (batch, succeeded) select 1 + n % 2000, 1 "
        "from generate_series(1, 4000) n"
    )
    connection.execute("vacuum analyze rota.job, rota.batch, rota.batch_delta")
    shown = Database(database)
    with open_probe(shown) as probe:
        facts = probe.facts("top", FRAME)
    assert (facts["queues"][0]["due"], facts["dead"]) == (1_000, 1_000)
    assert len(facts["batches"]) == FRAME["batches"]
    # Planning reads the catalog once.
    connection.execute(shown.statements["top"], FRAME)
    row = connection.execute(
        b"explain (analyze, buffers, format json) " + shown.statements["top"], FRAME
    ).fetchone()
    assert row is not None
    read = row[0][0]["Plan"]
    assert read["Shared Hit Blocks"] + read["Shared Read Blocks"] < 400


NOTHING_WAITS: dict[str, Any] = {
    "laned": 0, "awaiting": 0, "halted": [], "caps": [], "limits": [], "breakers": [],
}  # fmt: skip


@rule("M60", "M62", "M63")
def test_a_frame_says_what_jobs_wait_for_only_if_they_do(
    database: str, connection: Connection
) -> None:
    shown = Database(database)
    with open_probe(shown) as probe:
        facts = probe.facts("top", FRAME)
    assert facts["waits"] == NOTHING_WAITS
    assert not any("waiting" in line.plain for line in frame(facts, 1.0, width=80, height=40))
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, run_at, group_key, in_lane, "
        "waits_for, waits_since) values "
        "('t', 'd', 0, 'queued', rota.clock() + interval '1 h', null, null, 'limit smtp', "
        "  rota.clock() - interval '5 minutes'), "
        "('t', 'd', 0, 'waiting', rota.clock(), null, null, 'type report', "
        "  rota.clock() - interval '6 minutes'), "
        "('t', 'd', 0, 'waiting', rota.clock(), null, null, 'job 5', rota.clock()), "
        "('t', 'd', 0, 'dead', rota.clock(), 'invoice:42', true, 'person', "
        "  rota.clock() - interval '7 minutes')"
    )
    connection.execute(
        "insert into rota.breaker (name, key, state, opened_at, reason) values "
        "('charge', 'api', 'open', rota.clock() - interval '8 minutes', 'timeout')"
    )
    with open_probe(shown) as probe:
        facts = probe.facts("top", FRAME)
    shown.close()
    lines = [line.plain for line in frame(facts, 1.0, width=100, height=40)]
    for words in (
        ["limit smtp", "1", "5 min"],
        ["type report", "1", "6 min"],
        ["lane invoice:42", "7 min", "halted by job"],
        ["breaker charge api", "8 min", "open: timeout"],
        ["ordered groups and concurrency limits", "1"],
        ["other jobs to end", "1"],
    ):
        assert any(all(word in line for word in words) for line in lines), (words, lines)


@rule("M72")
def test_a_frame_shows_the_batches_that_have_not_ended(
    database: str, connection: Connection
) -> None:
    shown = Database(database)
    with open_probe(shown) as probe:
        facts = probe.facts("top", FRAME)
        assert not any("batch" in line.plain for line in frame(facts, 1.0, width=80, height=40))
        connection.execute(
            "insert into rota.batch (total, succeeded, dead, outcome, on_failure, created_at, "
            "  updated_at) "
            "select 1200, 700, case when n = 2 then 500 else 1 end, "
            "case when n = 2 then 'failed' end, 'continue', rota.clock() - interval '5 minutes', "
            "rota.clock() + n * interval '1 s' from generate_series(1, 3) n"
        )
        connection.execute(
            "insert into rota.batch_delta (batch, succeeded, cancelled) values (1, 50, 2)"
        )
        facts = probe.facts("top", FRAME)
    shown.close()
    lines = [line.plain.split() for line in frame(facts, 1.0, width=80, height=40)]
    first = lines.index(["batches"])
    assert lines[first + 1 : first + 4] == [
        ["batch", "done", "failed", "made"],
        ["3", "701/1,200", "1", "5", "min", "ago"],
        ["1", "753/1,200", "3", "5", "min", "ago"],
    ]


def test_a_frame_fits_any_screen() -> None:
    worker = {
        "name": "w" * 60, "release": "1", "running": 1, "slots": 10, "silent_s": 1.0, "up_s": 10.0,
        "heartbeat_epoch_s": 100.0, "stopped": False, "is_alive": True, "state": "alive",
        "quiet_s": 1.0,
        "succeeded": 5, "failed": 1, "dead": 0,
    }  # fmt: skip
    queue = {"queue": "q", "priority": 0, "due": 1, "later": 0, "waiting_s": 3.0}
    facts = {
        "queues": [queue] * 30,
        "paused": ["idle"],
        "running": [],
        "running_count": 30,
        "workers": [worker] * 30,
        "errors": [],
        "dead": 0,
        "installation": None,
        "waits": NOTHING_WAITS,
        "batches": [{"id": 1, "total": 9, "succeeded": 1, "dead": 0, "cancelled": 0, "made_s": 1}],
    }
    for width, height in ((10, 1), (20, 3), (80, 24), (200, 60)):
        lines = frame(facts, 1.0, width=width, height=height)
        assert len(lines) <= height and all(line.cell_len <= width for line in lines)
    assert any("more)" in line.plain for line in frame(facts, 1.0, width=80, height=24))
    assert frame(facts, 1.0, width=80, height=24, stale_why="away")[0].plain == "away"


def test_rates_are_what_was_finished_between_two_heartbeats() -> None:
    def said(beat: float, done: int, *, stopped: bool = False) -> list[dict[str, Any]]:
        return [
            {
                "name": "w",
                "heartbeat_epoch_s": beat,
                "up_s": 30.0,
                "silent_s": 0.0,
                "succeeded": done,
                "failed": 0,
                "dead": 0,
                "stopped": stopped,
            }
        ]

    rates = Rates()
    assert rates.see(said(100.0, 60)) == 2.0  # since it began
    assert rates.see(said(100.0, 60)) == 2.0  # nothing new is known
    assert rates.see(said(115.0, 210)) == 10.0
    assert rates.see(said(120.0, 210, stopped=True)) == 0.0
    assert rates.see([]) == 0.0
    # A drain that ended before the first look.
    assert Rates().see(said(100.0, 60, stopped=True)) == 0.0
    rates = Rates()
    assert rates.see([]) == 0.0
    # A drain that began and ended between two looks, after a look at which none worked.
    assert rates.see(said(100.0, 60, stopped=True)) == 2.0
    assert rates.see(said(100.0, 60, stopped=True)) == 0.0
