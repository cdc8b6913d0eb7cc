"""roles.md: each role has what the page says, and no more. security.md, of functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

import rota
from rota.observe.doctor import Level, examine
from rota.store.db import Database
from rota.store.migrate import migrate
from tests.docs.reader import read_page
from tests.support.cli import SHOP, CommandLine
from tests.support.rules import rule

PAGE = read_page("roles.md")
OWNER, MEMBER, READER, MONITOR = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
[COMMANDS] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
NAMES = ("my_worker", "my_worker_2", "my_reader", "my_monitor")
ASK_WHO_CALLS = {"holders_lock", "holders_meet", "keys_take"}
"""Functions with the owner's rights that write for a producer: they ask who calls."""
WRITE_NOTHING = {
    "alert_matches", "batch_ranges", "canonical_type", "hidden_fields", "ids_behind", "ids_reserve",
    "key_holders", "key_jobs", "lane_jobs",
}  # fmt: skip
OF_TRIGGERS = {"job_check", "job_fill", "job_run", "secret_check"}
Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def urls(empty_database: str) -> Iterator[dict[str, str]]:
    """The URL of each role, by its name on the page: made as the page says."""
    made = {name: f"{name}_{uuid4().hex[:8]}" for name in NAMES}
    with psycopg.connect(empty_database, autocommit=True) as admin:
        try:
            _run(admin, OWNER, made)
            as_role = {
                name: make_conninfo(empty_database, user=role) for name, role in made.items()
            }
            migrate(as_role["my_worker"])
            for block in (MEMBER, READER, MONITOR):
                _run(admin, block, made)
            yield as_role
        finally:
            for role in reversed(made.values()):
                admin.execute(
                    sql.SQL("drop owned by {0} cascade; drop role {0}").format(sql.Identifier(role))
                )


def _run(admin: Connection, block: str, made: dict[str, str]) -> None:
    names = re.compile("|".join(sorted(made, key=len, reverse=True)))
    admin.execute(names.sub(lambda found: made[found[0]], block).encode())


def _insert(url: str, status: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "insert into rota.job (job_type, queue, priority, status, failed_at, payload) "
            "values ('t', 'default', 0, %s, now(), '{\"name\": \"Ada\"}')",
            [status],
        )


def _count(connection: Connection, condition: str) -> int:
    row = connection.execute(
        "select count(*) from pg_class where relnamespace = 'rota'::regnamespace "
        f"and {condition}".encode()
    ).fetchone()
    assert row is not None
    return int(row[0])


@rule("M3", "M15")
def test_a_member_of_the_owner_works_and_what_it_creates_is_the_owners(
    urls: dict[str, str],
) -> None:
    last = "select max(relname) from pg_class where relname like %s and relkind = 'r'"
    app = rota.App(urls["my_worker_2"])
    done: list[str] = []

    @app.job("t")
    def note(name: str) -> None:
        done.append(name)

    with psycopg.connect(urls["my_worker"], autocommit=True) as owner:
        for table in ("attempt", "job_history"):
            row = owner.execute(last, [f"{table}_%"]).fetchone()
            assert row is not None
            owner.execute(f"drop table rota.{row[0]}".encode())
        assert _count(owner, "relispartition and relkind = 'r'") == 14
        _insert(urls["my_worker"], "queued")
        app.drain()
        assert done == ["Ada"]
        assert _count(owner, "relispartition and relkind = 'r'") == 16
        assert _count(owner, "relowner <> current_user::regrole") == 0
    app.close()
    for name in ("my_worker", "my_worker_2"):
        found = examine(Database(urls[name]), only=["privileges"])
        assert found["privileges"].level is Level.OK, found["privileges"]


@rule("M3", "M15")
def test_a_reader_reads_a_table_of_a_later_release_too_and_writes_nothing(
    urls: dict[str, str],
) -> None:
    _insert(urls["my_worker"], "queued")
    with psycopg.connect(urls["my_worker"], autocommit=True) as owner:
        owner.execute("create table rota.of_a_later_release (a int)")
    with psycopg.connect(urls["my_reader"], autocommit=True) as reader:
        assert reader.execute("select payload from rota.jobs").fetchall() == [({"name": "Ada"},)]
        assert reader.execute("select * from rota.of_a_later_release").fetchall() == []
        for statement in ("delete from rota.job", "select rota.job_cancel(array[1])"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(statement.encode())


@rule("M3")
def test_a_reader_of_the_page_sees_everything_with_doctor(urls: dict[str, str]) -> None:
    with psycopg.connect(urls["my_worker"], application_name="held") as other:
        other.execute("create temp table mine (a int)")
        found = examine(Database(urls["my_reader"]))
    assert [check.name for check, finding in found.findings if finding.level == Level.SKIPPED] == [
        "app"
    ]
    assert "idle in transaction" in found["snapshot"].what
    assert "can read" in found["privileges"].what


@rule("M86", "M15")
def test_a_monitor_evaluates_the_rules_and_reads_no_payload(
    urls: dict[str, str], tmp_path: Path
) -> None:
    _insert(urls["my_worker"], "dead")
    ran = CommandLine(tmp_path, ROTA_DATABASE_URL=urls["my_monitor"])("check")
    assert ran.status == 1 and ran.out.startswith("WARNING - dead jobs: 1 job died")
    with psycopg.connect(urls["my_monitor"], autocommit=True) as monitor:
        for table in ("job", "jobs", "job_history", "attempt"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                monitor.execute(f"select * from rota.{table}".encode())


@rule("M3")
def test_the_commands_of_the_page_say_what_the_role_may(
    urls: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    for name, level in (("my_worker", "ok"), ("my_reader", "warn")):
        rota_ = CommandLine(tmp_path, ROTA_DATABASE_URL=urls[name])
        for line in COMMANDS.splitlines():
            ran = rota_(*line.split("  #")[0].split()[1:])
            assert ran.status in (0, 1) and ran.out, ran
        [found] = [
            one for one in rota_("doctor", "--json").json["checks"] if one["name"] == "privileges"
        ]
        assert found["level"] == level, found


@rule("M45")
def test_what_runs_with_the_owners_rights_has_a_path_and_acts_for_nobody_unasked(
    connection: Connection,
) -> None:
    assert "`search_path = pg_catalog, pg_temp`" in read_page("security.md", "Functions")
    found = connection.execute(
        "select proname, proconfig, exists (select from aclexplode(coalesce(proacl, "
        "acldefault('f', proowner))) a where a.grantee = 0) from pg_proc "
        "where pronamespace = 'rota'::regnamespace and prosecdef"
    ).fetchall()
    assert all("search_path=pg_catalog, pg_temp" in settings for _, settings, _ in found)
    for_all = {name for name, _, is_for_all in found if is_for_all}
    assert for_all == ASK_WHO_CALLS | WRITE_NOTHING | OF_TRIGGERS
