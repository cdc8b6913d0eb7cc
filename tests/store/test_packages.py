"""Tables and functions of a package in the schema: made, checked, called, and what they find."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.errors import DeclarationError, SchemaMissing
from rota.observe.doctor import checks as doctor
from rota.store import ops
from tests.cli.here import Here
from tests.store.work import Connection
from tests.support.rules import rule

TABLE = "create table shop_item (id int primary key, name text check (name <> ''));"
PUT = """
create or replace function {schema}.shop_put(p_id int, p_facts jsonb default '{}')
returns table (id int, name text)
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into {schema}.shop_item as i (id, name) values (p_id, p_facts ->> 'name')
  returning i.id, i.name
$$;
"""
FINDINGS = """
create or replace function {schema}.shop_findings()
returns table (subject text, message text, cure text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select i.name, format('item %s has no price', i.id), 'give it one' from {schema}.shop_item i
$$;
"""

APP = """
import rota
from pathlib import Path

jobs = rota.Jobs(tables=rota.records.Tables("shop", Path("sql")))


@jobs.job("any")
def any_job() -> None: ...


app = rota.App(jobs=[jobs])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a package's SQL."""
    for name, text in (
        ("migrations/0001_tables.sql", TABLE),
        ("functions/shop_put.sql", PUT),
        ("functions/shop_findings.sql", FINDINGS),
    ):
        file = tmp_path / "sql" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.fixture
def jobs(folder: Path) -> rota.Jobs:
    return rota.Jobs(tables=rota.records.Tables("shop", folder / "sql"))


@pytest.fixture
def app(database: str, jobs: rota.Jobs) -> Iterator[rota.App]:
    app = rota.App(database, jobs=[jobs])

    @app.job("any")
    def any_job() -> None: ...

    yield app
    app.close()


def test_a_worker_does_not_start_without_the_tables_of_a_package(app: rota.App) -> None:
    with pytest.raises(SchemaMissing, match="lacks shop/0001_tables: run `rota migrate`"):
        app.drain()
    with pytest.raises(SchemaMissing, match="shop/0001_tables"):
        app.sync()
    assert app.migrate().applied == ["shop/0001_tables"]
    assert app.drain().succeeded == 0


def test_a_migration_is_applied_once_and_a_function_replaced_when_it_changed(
    app: rota.App, folder: Path, database: str
) -> None:
    assert app.migrate().replaced == ["shop_findings", "shop_put"]
    assert (app.migrate().applied, app.migrate().replaced) == ([], [])
    (folder / "sql/functions/shop_put.sql").write_text(
        PUT.replace("p_facts ->>", "'a ' || p_facts ->>")
    )
    changed = rota.App(
        database, jobs=[rota.Jobs(tables=rota.records.Tables("shop", folder / "sql"))]
    )
    assert changed.migrate().replaced == ["shop_put"]
    (folder / "sql/migrations/0002_more.sql").write_text("alter table shop_item add price int;")
    tables = rota.records.Tables("shop", folder / "sql")
    changed = rota.App(database, jobs=[rota.Jobs(tables=tables)])
    assert changed.migrate().applied == ["shop/0002_more"]
    changed.close()


def test_a_release_without_the_package_leaves_its_tables_alone(
    app: rota.App, database: str
) -> None:
    app.migrate()
    bare = rota.App(database)
    assert (bare.migrate().applied, bare.migrate().replaced) == ([], [])
    assert bare.sync().job_types == []
    bare.close()


def test_a_function_is_called_in_the_callers_transaction(
    app: rota.App, jobs: rota.Jobs, connection: Connection
) -> None:
    app.migrate()
    with connection.transaction(force_rollback=True):
        made = jobs.call("shop_put", {"id": 1, "facts": {"name": "tea"}}, connection=connection)
        assert made == [{"id": 1, "name": "tea"}]
    assert connection.execute("select count(*) from rota.shop_item").fetchone() == (0,)
    assert jobs.call("shop_put", {"id": 1, "facts": {"name": "tea"}}) == made


async def test_a_function_is_called_in_a_loop(app: rota.App, jobs: rota.Jobs) -> None:
    await asyncio.to_thread(app.migrate)
    assert await jobs.acall("shop_put", {"id": 1}) == [{"id": 1, "name": None}]
    await app.aclose()


def test_what_a_function_does_not_take_is_refused(app: rota.App, jobs: rota.Jobs) -> None:
    app.migrate()
    with pytest.raises(rota.UsageError, match="no function 'shop_get'"):
        jobs.call("shop_get")
    with pytest.raises(rota.UsageError, match="shop_put has no argument 'nmae'; it has id, facts"):
        jobs.call("shop_put", {"nmae": "tea"})
    with pytest.raises(rota.UsageError, match="shop_item_name_check"):
        jobs.call("shop_put", {"id": 1, "facts": {"name": ""}})
    jobs.call("shop_put", {"id": 1})
    with pytest.raises(rota.UsageError, match="shop_item_pkey"):
        jobs.call("shop_put", {"id": 1})
    with pytest.raises(rota.UsageError, match="no function 'x' in their tables"):
        rota.Jobs().call("x")


def test_what_a_package_finds_is_in_doctor_and_an_alert(
    app: rota.App, jobs: rota.Jobs, connection: Connection
) -> None:
    app.migrate()
    assert doctor.examine(app._database)["packages"].is_sound
    jobs.call("shop_put", {"id": 1, "facts": {"name": "tea"}})
    found = doctor.examine(app._database)["packages"]
    assert (found.what, found.what_to_do) == ("shop: item 1 has no price", "give it one")
    [alert] = app._database.run(ops.find_alert_matches("packages"))
    assert (alert.subject, alert.message) == ("shop tea", "item 1 has no price: give it one")


def test_a_check_of_a_package_that_fails_hides_no_other_alert(
    app: rota.App, connection: Connection, folder: Path
) -> None:
    app.migrate()
    connection.execute("alter table rota.shop_item rename to shop_gone")
    [found] = connection.execute("select * from rota.package_findings()").fetchall()
    assert found[:2] == ("shop", "shop_findings")
    assert "shop_item" in found[2]


def test_a_file_that_has_no_proper_name_is_refused(folder: Path) -> None:
    for name in ("my_shop", "other"):
        with pytest.raises(DeclarationError):
            rota.records.Tables(name, folder / "sql")
    for file, text in (
        ("migrations/tables.sql", "no file of migrations is called tables.sql"),
        ("migrations/0001_other.sql", "two migrations have one number"),
        ("functions/shop-put.sql", "no file of functions is called shop-put.sql"),
    ):
        (folder / "sql" / file).write_text(TABLE)
        with pytest.raises(DeclarationError, match=text):
            rota.records.Tables("shop", folder / "sql")
        (folder / "sql" / file).unlink()


def test_tables_that_could_be_anothers_are_refused(database: str, folder: Path) -> None:
    with pytest.raises(DeclarationError, match="No such file"):
        rota.records.Tables("shop", folder / "nowhere")
    for file in (folder / "sql" / "functions").iterdir():
        file.unlink()
    alert = rota.Jobs(tables=rota.records.Tables("alert", folder / "sql"))
    with pytest.raises(DeclarationError, match="Rota itself has alert_"):
        rota.App(database, jobs=[alert]).migrate()
    twice = [rota.Jobs(tables=rota.records.Tables("shop", folder / "sql")) for _ in range(2)]
    with pytest.raises(DeclarationError, match="two Jobs have tables of one name: shop, shop"):
        rota.App(database, jobs=twice).migrate()


@rule("M12")
def test_the_command_line_makes_and_prints_the_tables_of_packages_with_the_app(
    folder: Path, database: str, connection: Connection
) -> None:
    (folder / "shop.py").write_text(APP)
    rota_of = Here(folder, ROTA_DATABASE_URL=database, ROTA_APP="shop:app")
    refused = rota_of("migrate", "--check")
    assert refused.status == 3
    assert "lacks shop/0001_tables" in refused.err
    printed = rota_of.ok("migrate", "--sql", "--after", "1").out
    with connection.transaction(force_rollback=True):
        connection.execute(printed.encode())
        assert connection.execute("select count(*) from rota.shop_item").fetchone() == (0,)
    assert "applied shop/0001_tables" in rota_of.ok("migrate").out
    rota_of.ok("migrate", "--check")
