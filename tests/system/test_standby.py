"""read-replicas.md: what a standby shows, and what becomes of a worker when it is promoted; a
replica of the rows."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

import rota
from rota.store.migrate import migrate
from tests.cli.test_json import READING
from tests.docs.reader import read_page
from tests.support.cli import SHOP, CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.table import over, put_many, rows

pytestmark = [pytest.mark.nightly, pytest.mark.system]

PAGE = read_page("read-replicas.md")
BLOCKS = re.compile(r"```sql\n-- on the (primary|replica)\n(.*?)```", re.DOTALL)
REFUSED = "the server is read-only (a standby?): connect to the primary"
PAGES = (
    *("/", "/jobs", "/dead", "/jobs/1", "/errors", "/queues", "/schedules", "/workers", "/types"),
    *("/batches", "/groups", "/limits", "/breakers", "/effects", "/statistics", "/log", "/alerts"),
    "/doctor",
)
FOLLOWS = "select from pg_stat_replication where sync_state = 'sync'"


class Standby(PostgresServer):
    """A copy of a running server that follows it."""

    def __init__(self, primary: PostgresServer, log: Path) -> None:
        super().__init__(
            primary.place, f"{primary.socket_dir.name}-standby", log, primary.installed
        )
        self._primary = primary

    def _init(self, data: Path) -> None:
        options = ["--write-recovery-conf", "--no-sync", "--checkpoint", "fast"]
        url = f"{self._primary.url()}?application_name=standby"
        self._run("pg_basebackup", "--pgdata", str(data), *options, "--dbname", url)

    def promote(self) -> None:
        """Make it a primary; return when it takes writes."""
        self._run("pg_ctl", "promote", "--wait", "--pgdata", str(self.data))


@pytest.fixture
def standby(own_server: PostgresServer, tmp_path: Path) -> Iterator[Standby]:
    """Not started: it is made of what the primary has then."""
    with (own_server.data / "pg_hba.conf").open("a") as access:
        access.write("host replication all 127.0.0.1/32 trust\n")
    own_server.restart()
    migrate(own_server.url())
    standby = Standby(own_server, tmp_path / "standby.log")
    yield standby
    standby.stop("immediate")


@rule("M85")
def test_it_shows_everything_and_lets_nobody_act(
    own_server: PostgresServer, standby: Standby, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    line = CommandLine(tmp_path, ROTA_DATABASE_URL=own_server.url(), ROTA_APP="shop:app")
    line.ok("enqueue", "send_mail", "--payload", '{"user_id": 1}')
    line.ok("work", "--drain")
    line.ok("enqueue", "send_mail", "--payload", '{"user_id": 2}', "--delay", "1h")
    standby.start()
    line.environment["ROTA_DATABASE_URL"] = standby.url()
    for command in READING:
        ran = line(*command)
        if command[0] in {"sync", "doctor"}:
            assert "read-only" in ran.out + ran.err, ran
        else:
            assert ran.status in {0, 1}, ran  # 1: an alert
    assert line("doctor").out.count("standby") == 2
    for act in (["cancel", "2"], ["enqueue", "send_mail", "--payload", '{"user_id": 3}']):
        assert line(*act).error[1].endswith(REFUSED)

    port = unused_port()
    line.environment["ROTA_WEB_TOKEN"] = password = "a long enough password"
    somebody = httpx.Client(timeout=30, auth=("ann", password))
    with line.start("web", "--port", str(port)), somebody as client:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(client, url), what="it serves")
        assert {page: client.get(url + page).status_code for page in PAGES} == dict.fromkeys(
            PAGES, 200
        )
        form, here = {"id": 2, "why": "not wanted"}, {"sec-fetch-site": "same-origin"}
        refused = client.post(f"{url}/jobs/cancel", data=form, headers=here)
        assert REFUSED in refused.text


@rule("M85")
def test_the_page_makes_a_logical_replica_that_shows_the_jobs_and_runs_none(
    own_server: PostgresServer, run_place: Path, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    line = CommandLine(tmp_path, ROTA_DATABASE_URL=own_server.url(), ROTA_APP="shop:app")
    line.ok("migrate")
    replica = PostgresServer(run_place, "replica", tmp_path / "replica.log")
    replica.start()  # with an identity of its own, unlike those of `own_server`
    with psycopg.connect(own_server.url(), autocommit=True) as connection:
        connection.execute("alter system set wal_level = logical")
    own_server.restart()
    line.ok("enqueue", "send_mail", "--payload", '{"user_id": 1}')
    line.ok("work", "--drain")
    line.ok("enqueue", "send_mail", "--payload", '{"user_id": 2}')

    dump = [str(own_server.program("pg_dump")), "--schema-only", "--schema=rota", own_server.url()]
    schema = subprocess.run(dump, check=True, capture_output=True)
    load = [str(own_server.program("psql")), "--quiet", "--set=ON_ERROR_STOP=1", replica.url()]
    subprocess.run(load, check=True, input=schema.stdout, capture_output=True)
    of_page = "postgresql://replicator@db1/shop"
    with (
        psycopg.connect(own_server.url(), autocommit=True) as primary,
        psycopg.connect(replica.url(), autocommit=True) as other,
    ):
        primary.execute("create role replicator login replication")
        primary.execute("grant usage on schema rota to replicator")
        primary.execute("grant select on all tables in schema rota to replicator")
        own = own_server.url().replace("postgres@", "replicator@")
        for where, block in BLOCKS.findall(PAGE):
            connection = primary if where == "primary" else other
            for statement in block.replace(of_page, own).split(";\n"):
                connection.execute(statement.encode())
        line.ok("enqueue", "send_mail", "--payload", '{"user_id": 3}')
        count = "select count(*) from rota.jobs"
        eventually(lambda: rows(other, count) == [(3,)], what="the replica has followed")
        with psycopg.connect(own_server.url()) as asks:
            seen = rows(asks, "select id, status, finished_at from rota.jobs order by id")
        assert rows(other, "select id, status, finished_at from rota.jobs order by id") == seen

        line.ok("erase", "--job", "1", "--why", "asked", "--yes")
        kept = "select payload from rota.jobs where id = 1"
        erased = rows(primary, kept)
        eventually(lambda: rows(other, kept) == erased, what="it is erased there too")
        assert erased != [({"user_id": 1},)]

        line.environment["ROTA_DATABASE_URL"] = replica.url()
        assert "succeeded" in line.ok("job", "1").out
        assert line("work", "--drain").status == 6
        assert rows(other, "select status, claims from rota.job") == [("queued", 0)] * 2
        for statement in (
            "alter subscription rota disable",
            "alter subscription rota set (slot_name = none)",
            "drop subscription rota",
        ):
            other.execute(statement.encode())
    replica.stop("immediate")


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.TransportError:
        return False


@rule("M2")
async def test_a_worker_goes_on_where_the_standby_is_promoted(
    own_server: PostgresServer, standby: Standby
) -> None:
    """The two hosts stand in the URL, and a commit waits for both: nothing may be lost."""
    ran: list[int] = []
    jobs = rota.Jobs()

    @jobs.job("charge")
    async def charge() -> None:
        ran.append(1)
        if len(ran) == 100:
            await asyncio.to_thread(own_server.stop, "immediate")
            await asyncio.to_thread(standby.promote)

    standby.start()
    with psycopg.connect(own_server.url(), autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = 'standby'")
        connection.execute("select pg_reload_conf()")
        eventually(lambda: rows(connection, FOLLOWS), what="commits wait for the standby")
        put_many(connection, "charge", 400)
    both = f"127.0.0.1:{own_server.port},127.0.0.1:{standby.port}"
    url = f"postgresql://postgres@{both}/postgres?target_session_attrs=read-write"
    with psycopg.connect(standby.url(), autocommit=True) as connection:
        async with Hand(url, jobs, slots=10, lease_s=12):
            await aeventually(lambda: over(connection) == 400, 60)
    assert 400 <= len(ran) <= 420  # those that ran, and those that were not written yet, run again
