"""A disk that is full, a real one of a few megabytes: what ended waits for room, and is written
once."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

import rota
from rota.observe.events import DatabaseLost
from rota.runtime.service import LOG_S
from rota.store.migrate import migrate
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, over, put_many, rows, value

pytestmark = pytest.mark.system

JOBS = 200


@pytest.fixture
def tiny_disk(own_server: PostgresServer) -> Iterator[Path]:
    """A file system of 8 MB that belongs to the server."""
    place = own_server.place / f"tiny-{uuid4().hex[:8]}"
    place.mkdir()
    command = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size=8m,uid={pwd.getpwnam('nobody').pw_uid},mode=700",
        "tmpfs",
        str(place),
    ]
    if (
        os.geteuid() != 0
        or subprocess.run(command, check=False, capture_output=True).returncode != 0
    ):
        pytest.skip(
            "A FULL DISK WAS NOT TESTED: only root may mount a small one; "
            "the error alone is tested in test_unwritten.py"
        )
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@rule("M2", "M33")
async def test_while_the_disk_of_the_history_is_full_nothing_is_lost(
    own_server: PostgresServer, tiny_disk: Path
) -> None:
    migrate(own_server.url())
    jobs = rota.Jobs()

    @jobs.job("work", lease="6s")
    async def work() -> None: ...

    with psycopg.connect(own_server.url(), autocommit=True) as connection:
        _fill(connection, tiny_disk)
        put_many(connection, "work", JOBS)
        began_at = time.monotonic()
        async with Hand(own_server.url(), jobs, slots=JOBS, urgent_slots=0) as hand:
            lost = await hand.heard(DatabaseLost)
            assert (
                lost.service == "finisher"
                and "the database refuses" in lost.reason
                and "No space left on device" in lost.reason
            )
            running = (
                "select count(*) from rota.job where status = 'running' "
                "and locked_until > clock_timestamp()"
            )
            renewed = f"{running} and locked_until > started_at + interval '6.5 s'"
            await asyncio.to_thread(
                eventually, lambda: value(connection, renewed) == JOBS - over(connection)
            )
            connection.execute("drop table filler")
            await asyncio.to_thread(eventually, lambda: over(connection) == JOBS)
        lost_each_time = [event for event in hand.events if isinstance(event, DatabaseLost)]
        # Without the numbers of files and blocks.
        told = Counter(
            (event.service, re.sub(r"\d+", "", event.reason)) for event in lost_each_time
        )
        assert max(told.values()) <= 1 + (time.monotonic() - began_at) / LOG_S, "not a flood"
        assert rows(
            connection, "select distinct status, attempts, claims from rota.job_history"
        ) == [("succeeded", 1, 1)]


def _fill(connection: Connection, disk: Path) -> None:
    connection.execute(f"create tablespace tiny location '{disk}'".encode())
    for (partition,) in rows(
        connection,
        "select inhrelid::regclass::text from pg_inherits "
        "where inhparent = 'rota.job_history'::regclass",
    ):
        connection.execute(f"alter table {partition} set tablespace tiny".encode())
    connection.execute("create table filler (text text) tablespace tiny")
    connection.execute("alter table filler alter text set storage plain")
    for pages in (20, 1):  # the last one is what a row of history would fit into
        with pytest.raises(psycopg.errors.DiskFull):
            _insert_for_ever(connection, pages)


def _insert_for_ever(connection: Connection, pages: int) -> None:
    while True:
        connection.execute(
            "insert into filler select repeat('x', 7000) from generate_series(1, %s)", [pages]
        )
