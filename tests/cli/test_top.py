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
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.cli.top import LIMITS
from rota.store import ops
from rota.store.db import Database
from rota.store.migrate import migrate
from rota.store.probe import open_probe
from tests.cli.here import Here
from tests.store.cost import count_blocks
from tests.store.planned import set_clock
from tests.store.work import SUCCEED, Hand, insert
from tests.support.rules import rule
from tests.support.server import PostgresServer

Connection = psycopg.Connection[TupleRow]


class Terminal:
    """A command in a terminal: what it has drawn, and the terminal's settings."""

    def __init__(self, url: str) -> None:
        self.screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rota", "top", "--every", "0.5"],
            env={**os.environ, "ROTA_DATABASE_URL": url, "TERM": "xterm"},
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
def terminal(url: str) -> Iterator[Terminal]:
    """A terminal that does not outlive its test."""
    opened = Terminal(url)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.screen)
        os.close(opened.theirs)


@pytest.mark.nightly
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


@rule("M85")
def test_one_frame_goes_into_a_pipe(rota: Here, connection: Connection) -> None:
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


@rule("M85")
def test_a_frame_reads_no_more_of_many_jobs_than_of_few(
    database: str, connection: Connection
) -> None:
    connection.execute("set session_replication_role = replica")  # without the triggers
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, failed_at) "
        "select 't', 'd', 0, case when n > 40000 then 'dead' else 'queued' end, "
        "case when n > 40000 then now() end from generate_series(1, 50000) n"
    )
    connection.execute(
        "insert into rota.batch (total, on_failure, outcome) "
        "select 9, 'continue', case when n > 2000 then 'failed' end "
        "from generate_series(1, 20000) n"
    )
    connection.execute("vacuum analyze rota.job, rota.batch")
    shown = Database(database)
    with open_probe(shown) as probe:
        facts = probe.facts("top", LIMITS)
    assert (facts["queues"][0]["due"], facts["dead"]) == (1_000, 1_000)
    assert len(facts["batches"]) == LIMITS["batches"]
    # Planning reads the catalog once.
    connection.execute(shown.statements["top"], LIMITS)
    assert count_blocks(connection, shown.statements["top"], LIMITS) < 400


@rule("M85")
def test_a_rate_is_what_was_finished_between_two_heartbeats(
    database: str, connection: Connection
) -> None:
    long, drain = Hand(connection, "long"), Hand(connection, "drain")
    start = datetime.now(UTC)

    def rate_at(seconds: float) -> float:
        set_clock(connection, start + timedelta(seconds=seconds))
        with open_probe(Database(database)) as probe:
            return float(probe.facts("top", LIMITS)["finished_per_s"])

    assert rate_at(0) == 0
    long.send_heartbeat()
    assert rate_at(15) == 0
    long.send_heartbeat(succeeded=60, failed=20, dead=10)
    assert rate_at(15) == rate_at(29) == 6
    long.send_heartbeat(succeeded=60, failed=20, dead=24)
    drain.send_heartbeat()
    assert rate_at(31) == 1
    drain.run(ops.stop("drain", {"succeeded": 8, "dead": 2}))
    assert rate_at(32) == 1 + 5, "a short drain too"
    assert rate_at(50) == 5, "of whom nothing is heard, nothing is known"
    assert rate_at(52) == 0
