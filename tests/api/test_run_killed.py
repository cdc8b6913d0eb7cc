"""`rota.testing.run_twice` kills a handler between its commits, and says what stays undone."""

from __future__ import annotations

import asyncio
import linecache
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

import rota
from rota.testing import arun_twice, kills, run_twice
from tests.support.rules import rule

Context = rota.Context
Connection = psycopg.Connection[TupleRow]
DEBIT = "update public.account set balance = balance - 10 where name = 'ada'"
CREDIT = "update public.account set balance = balance + 10 where name = 'bob'"
MARK = "insert into public.transfer (number) values (7) on conflict do nothing returning number"
TABLES = ["account", "transfer"]
LEDGER = "create table ledger (payer text); insert into ledger values ('ada');"
WRITE = "create function write() returns trigger language plpgsql as 'begin {} return null; end';"
FORGET = LEDGER + WRITE.format("delete from ledger;")
"""A table that no test names, and a function that empties it."""
CONSTRAINT = "alter table ledger add constraint its_payer foreign key (payer) references account"
TRIGGER = "create trigger forget after delete on account execute function write();"


@pytest.fixture
def app(database: str) -> Iterator[rota.App]:
    app = rota.App(database)
    yield app
    app.close()


@pytest.fixture(autouse=True)
def accounts(connection: Connection) -> None:
    """The application's tables; one refers to the other."""
    connection.execute(
        """
        create table public.account (name text primary key, balance int);
        insert into public.account values ('ada', 100), ('bob', 0);
        create table public.transfer (
          id serial primary key, number int unique, at timestamptz default clock_timestamp(),
          payer text default 'ada' references public.account, double int generated always as
          (number * 2) stored
        );
        """
    )


def balances(connection: Connection) -> list[Any]:
    return connection.execute("select name, balance from public.account order by name").fetchall()


def add_worker(connection: Connection) -> None:
    """As if another process worked here."""
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) "
        "values ('web:1', 'web', 1, '1', '1', '{}', '{}')"
    )


def with_psycopg(url: str) -> Callable[[], Any]:
    def transfer() -> None:
        with psycopg.connect(url, autocommit=True) as own:
            with own.transaction():
                is_new = own.execute(MARK).fetchone()
                if is_new:
                    own.execute(DEBIT)
            if is_new:
                own.execute(CREDIT)

    return transfer


def with_asyncpg(url: str) -> Callable[[], Any]:
    async def transfer() -> None:
        own = await asyncpg.connect(url)
        try:
            async with own.transaction():
                is_new = await own.fetchval(MARK)
                if is_new:
                    await own.execute(DEBIT)
            if is_new:
                await own.execute(CREDIT)
        finally:
            await own.close()

    return transfer


def with_sqlalchemy(url: str) -> Callable[[], Any]:
    def transfer() -> None:
        engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
        with Session(engine) as session:
            if session.execute(text(MARK)).first():
                session.execute(text(DEBIT))
                session.commit()
                session.execute(text(CREDIT))
                session.commit()
        engine.dispose()

    return transfer


@rule("M50")
@pytest.mark.parametrize("library", [with_psycopg, with_asyncpg, with_sqlalchemy])
def test_a_debit_without_its_credit_is_told(
    app: rota.App, database: str, library: Callable[[str], Any]
) -> None:
    job = app.job("transfer")(library(database))
    with pytest.raises(AssertionError, match="a run of 'transfer' that is killed before line") as e:
        run_twice(job.new(), tables=TABLES)
    head, *told = str(e.value).split("\n")
    assert head.endswith("test_run_killed.py is not made good:")
    assert told == ["  table account: 1 row more: (bob,0)", "  table account: 1 row gone: (bob,10)"]


@rule("M50")
def test_a_handler_that_goes_on_where_it_was_is_harmless(
    app: rota.App, database: str, connection: Connection
) -> None:
    runs = []

    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        runs.append(ctx.job.id)
        with psycopg.connect(database, autocommit=True) as own:
            own.execute(MARK)
            for balance, name in ((90, "ada"), (10, "bob")):
                own.execute("update account set balance = %s where name = %s", [balance, name])

    run_twice(transfer.new(), tables=TABLES)
    assert balances(connection) == [("ada", 90), ("bob", 10)]
    assert len(runs) > 4, "it was killed"
    assert len(app.find(job_type="transfer")) == 1, "the others are forgotten"


@rule("M50")
def test_a_handler_with_one_commit_is_not_killed(app: rota.App, database: str) -> None:
    runs = []

    @app.job("transfer")
    def transfer() -> None:
        runs.append(1)
        with psycopg.connect(database) as own:
            if own.execute(MARK).fetchone():
                own.execute(DEBIT)
                own.execute(CREDIT)
        runs.append(2)  # a kill here leaves what one after the handler does

    run_twice(transfer.new(), tables=TABLES)
    assert runs == [1, 2, 1, 2]


@rule("M50")
def test_where_others_work_nothing_is_put_back(
    app: rota.App, database: str, connection: Connection
) -> None:
    runs = []

    @app.job("transfer")
    def transfer() -> None:
        runs.append(1)
        with psycopg.connect(database, autocommit=True) as own:
            if own.execute(MARK).fetchone():
                own.execute(DEBIT)
                own.execute(CREDIT)

    add_worker(connection)
    with pytest.warns(UserWarning, match="worker web:1 has worked here within the hour"):
        run_twice(transfer.new(), tables=TABLES)
    assert runs == [1, 1], "it was not killed"
    assert balances(connection) == [("ada", 90), ("bob", 10)]


@pytest.fixture
def role(admin: Connection, database: str, connection: Connection) -> Iterator[str]:
    """The URL of a role that writes all rows, and is no superuser."""
    name = f"twice_{uuid4().hex[:12]}"
    admin.execute(f"create role {name} login in role pg_read_all_data, pg_write_all_data".encode())
    connection.execute(f"grant execute on all functions in schema rota to {name}".encode())
    yield make_conninfo(database, user=name)
    connection.execute(f"drop owned by {name}; drop role {name}".encode())


@rule("M50")
@pytest.mark.parametrize(
    ("is_superuser", "declaration", "told"),
    [
        (False, f"{LEDGER} {CONSTRAINT} on delete cascade", "its_payer"),
        (False, f"{LEDGER} {CONSTRAINT} on delete set null", "its_payer"),
        (False, FORGET + TRIGGER, "forget"),
        (True, f"{FORGET + TRIGGER} alter table account enable always trigger forget", "forget"),
        (
            True,
            LEDGER + "create rule forget as on delete to account do also delete from ledger",
            "a rule or another table",
        ),
        (
            True,
            "create table ledger (payer text) inherits (account); "
            "insert into ledger values ('eve', 0, 'ada')",
            "a rule or another table",
        ),
    ],
    ids=["cascade", "set null", "trigger", "always", "rule", "child"],
)
def test_rows_that_cannot_go_and_come_alone_are_not_put_back(
    role: str,
    database: str,
    connection: Connection,
    is_superuser: bool,
    declaration: str,
    told: str,
) -> None:
    url = database if is_superuser else role
    connection.execute(declaration.encode())
    ledger = connection.execute("select * from ledger").fetchall()
    app = rota.App(url)
    transfer = app.job("transfer")(with_psycopg(url))
    with pytest.warns(UserWarning, match=f"rows of account .* alone, because of {told}$"):
        run_twice(transfer.new(), tables=TABLES)
    assert connection.execute("select * from ledger").fetchall() == ledger
    app.close()


@rule("M50")
def test_a_role_that_is_no_superuser_kills_where_nothing_else_would_change(
    role: str, connection: Connection
) -> None:
    connection.execute(
        f"{WRITE.format('')} create trigger note after update on account execute function write()"
    )
    app = rota.App(role)
    transfer = app.job("transfer")(with_psycopg(role))
    with pytest.raises(AssertionError, match="is not made good"):
        run_twice(transfer.new(), tables=["transfer", "account"])
    app.close()


@rule("M50")
def test_rows_are_put_back_and_compared_to_the_last_digit(
    app: rota.App, database: str, connection: Connection
) -> None:
    connection.execute(
        "create table price (t numeric(38, 18), note jsonb, double int generated always as (2) "
        "stored); insert into price values (12345678901234567890.123456789012345678, 'null')"
    )

    @app.job("transfer")
    def transfer() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            if own.execute(MARK).fetchone():
                own.execute("update price set t = t + 1e-18")

    with pytest.raises(AssertionError, match=r"gone: \(12345678901234567890.123456789012345679,nu"):
        run_twice(transfer.new(), tables=["price", "transfer"])
    rows = connection.execute("select price::text from price").fetchall()
    assert rows == [("(12345678901234567890.123456789012345679,null,2)",)]


@rule("M50")
def test_a_commit_is_seen_also_if_a_later_transaction_ended_before(
    app: rota.App, database: str, connection: Connection
) -> None:
    @app.job("transfer")
    def transfer() -> None:
        with psycopg.connect(database) as own:
            if own.execute(MARK).fetchone():
                own.execute(DEBIT)
                connection.execute("select pg_current_xact_id()")
                own.commit()
                own.execute(CREDIT)

    with pytest.raises(AssertionError, match="is not made good"):
        run_twice(transfer.new(), tables=TABLES)


def compile_module(file: str, name: str, source: str, **names: object) -> dict[str, Any]:
    """Run source as if it was installed there."""
    namespace = {"__name__": name, **names}
    exec(compile(source, file, "exec"), namespace)
    return namespace


TRANSFER = """
def transfer() -> None:
    with connect(url, autocommit=True) as own:
        if own.execute(MARK).fetchone():
            own.execute(DEBIT)
            own.execute(CREDIT)
"""


@rule("M50")
@pytest.mark.parametrize("is_called", [False, True])
def test_a_handler_that_is_installed_is_killed_and_so_are_neighbours_of_rota(
    app: rota.App, database: str, is_called: bool
) -> None:
    place = f"{Path(rota.__file__).parent}mail" if is_called else sysconfig.get_path("purelib")
    module = compile_module(
        f"{place}/shop.py", "shop", TRANSFER,
        connect=psycopg.connect, url=database, MARK=MARK, DEBIT=DEBIT, CREDIT=CREDIT,
    )  # fmt: skip

    def transfer() -> None:
        module["transfer"]()

    job = app.job("transfer")(transfer if is_called else module["transfer"])
    with pytest.raises(AssertionError, match=rf"before line \d of {place}/shop.py is not"):
        run_twice(job.new(), tables=TABLES)


@rule("M50")
def test_a_handler_of_which_no_line_is_seen_is_warned_of(app: rota.App) -> None:
    module = compile_module("<string>", "shop", "def transfer() -> None: pass")
    transfer = app.job("transfer")(module["transfer"])
    with pytest.warns(UserWarning, match="none of its lines was seen"):
        run_twice(transfer.new(), tables=TABLES)


@rule("M50")
async def test_a_warning_names_the_line_of_the_test_and_comes_last(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)
    add_worker(connection)
    transfer = app.job("transfer")(with_psycopg(database))
    with pytest.warns(UserWarning, match="web:1") as awaited:
        await arun_twice(transfer.new(), tables=TABLES)  # here
    with pytest.warns(UserWarning, match="web:1") as called:
        await asyncio.to_thread(lambda: run_twice(transfer.new(), tables=TABLES))  # here
    for one in (*awaited, *called):
        assert linecache.getline(one.filename, one.lineno).endswith("# here\n")

    @app.job("adds")
    def adds() -> None:
        connection.execute(DEBIT)

    with pytest.raises(AssertionError, match="not harmless"):  # a warning is an error here
        await arun_twice(adds.new(), tables=TABLES)
    await app.aclose()


@rule("M50")
def test_a_job_that_a_killed_run_never_enqueues_is_told(app: rota.App, database: str) -> None:
    @app.job("mail")
    def mail() -> None: ...

    @app.job("transfer")
    def transfer() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            if own.execute(MARK).fetchone():
                mail.enqueue()

    with pytest.raises(AssertionError, match="1 job of type 'mail' enqueued never"):
        run_twice(transfer.new(), tables=TABLES)


@rule("M50", "M52")
def test_an_effect_that_is_uncertain_after_a_kill_is_for_a_person_and_no_fault(
    app: rota.App, database: str
) -> None:
    runs = []

    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        runs.append(1)
        with psycopg.connect(database, autocommit=True) as own, ctx.effect("mail:7") as effect:
            if not effect.done:
                own.execute(MARK)
                effect.result = 1

    run_twice(transfer.new(), tables=TABLES)
    assert len(runs) > 3


@rule("M50")
def test_a_next_run_that_fails_is_told_with_its_error(app: rota.App, database: str) -> None:
    @app.job("transfer")
    def transfer() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            [(balance,)] = own.execute("select balance from account where name = 'ada'").fetchall()
            if not own.execute("select from transfer").rowcount:
                if balance != 100:
                    raise ValueError("where is the money?")
                own.execute(DEBIT)
                own.execute(MARK)

    with pytest.raises(AssertionError, match=r"(?s)made good:.*did not succeed.*where is the m"):
        run_twice(transfer.new(), tables=TABLES)


@rule("M50", "M54")
def test_a_handler_that_finishes_its_job_itself_is_killed_before(
    app: rota.App, database: str
) -> None:
    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        with psycopg.connect(database, autocommit=True) as own:
            own.execute(DEBIT)
        with ctx.transaction() as connection:
            connection.execute(CREDIT)

    with pytest.raises(AssertionError, match=r"1 row more: \(ada,80\)"):
        run_twice(transfer.new(), tables=TABLES)


@rule("M50")
def test_a_table_that_is_not_named_is_warned_of(app: rota.App, database: str) -> None:
    transfer = app.job("transfer")(with_psycopg(database))
    with pytest.warns(UserWarning, match="tells nothing of 'transfer' .*name all tables"):
        run_twice(transfer.new(), tables=["account"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_twice(transfer.new())


@rule("M50")
def test_of_many_places_ten_are_tried(
    app: rota.App, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "KILLS_MAX", 3)
    runs = []

    @app.job("transfer")
    def transfer() -> None:
        runs.append(1)
        with psycopg.connect(database, autocommit=True) as own:
            for balance in range(1, 9):
                own.execute("update account set balance = %s", [balance])

    run_twice(transfer.new(), tables=TABLES)
    assert len(runs) == 2 + 1 + 3 * 2
