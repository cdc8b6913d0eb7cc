"""`rota.testing.run_twice` kills a handler between its commits, and says what stays undone."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import warnings
from collections.abc import Callable, Iterator
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
from rota.testing import make_context, run_twice
from rota.testing.kills import (
    Row,
    Watcher,
    begin_again,
    find_obstacle,
    find_stable,
    make_state_query,
    read_tables,
)
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


# Where a handler is killed


def find_places(connection: Connection, handler: Callable[[], Any]) -> list[str]:
    """Run it; return the lines before which a kill would leave it half done."""
    watcher = Watcher(handler, connection, make_state_query("rota", 0, TABLES))
    with watcher.around(make_context()):
        if inspect.iscoroutinefunction(handler):
            asyncio.run(handler())
        else:
            handler()
    assert watcher.visits, "none of its lines was seen"
    return [linecache.getline(file, line).strip() for file, line, _ in watcher.list_places()]


@rule("M50")
def test_a_handler_is_killed_between_two_commits_of_any_library(
    database: str, connection: Connection
) -> None:
    for library, line in (
        (with_psycopg, "if is_new:"),
        (with_asyncpg, "if is_new:"),
        (with_sqlalchemy, "session.execute(text(CREDIT))"),
    ):
        connection.execute("truncate transfer")
        assert find_places(connection, library(database)) == [line], library


@rule("M50")
def test_a_commit_is_seen_also_if_a_later_transaction_ended_before(
    database: str, connection: Connection
) -> None:
    def transfer() -> None:
        with psycopg.connect(database) as own:
            own.execute(DEBIT)
            connection.execute("select pg_current_xact_id()")
            own.commit()
            own.execute(CREDIT)

    with psycopg.connect(database, autocommit=True) as other:
        assert find_places(other, transfer) == ["own.execute(CREDIT)"]


@rule("M50")
def test_of_many_places_ten_are_tried(database: str, connection: Connection) -> None:
    def transfer() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            for balance in range(40):
                own.execute("update account set balance = %s", [balance])

    assert len(find_places(connection, transfer)) == 10


@pytest.fixture
def role(admin: Connection, database: str, connection: Connection) -> Iterator[str]:
    """The URL of a role that writes all rows, and is no superuser."""
    name = f"twice_{uuid4().hex[:12]}"
    admin.execute(f"create role {name} login in role pg_read_all_data, pg_write_all_data".encode())
    connection.execute(f"grant execute on all functions in schema rota to {name}".encode())
    yield make_conninfo(database, user=name)
    connection.execute(f"drop owned by {name}; drop role {name}".encode())


@rule("M50")
def test_rows_that_cannot_go_and_come_alone_are_not_put_back(
    role: str, database: str, connection: Connection
) -> None:
    superuser, other = rota.App(database), rota.App(role)
    note = (
        f"{WRITE.format('')} create trigger note after update on account execute function write()"
    )
    always = f"{FORGET + TRIGGER} alter table account enable always trigger forget"
    rule = "create rule forget as on delete to account do also delete from ledger"
    child = "create table ledger (payer text) inherits (account)"
    for app, declaration, told in (
        (other, f"{LEDGER} {CONSTRAINT} on delete cascade", "its_payer"),
        (other, f"{LEDGER} {CONSTRAINT} on delete set null", "its_payer"),
        (other, FORGET + TRIGGER, "forget"),
        (other, LEDGER + note, None),
        (superuser, FORGET + TRIGGER, None),
        (superuser, always, "forget"),
        (superuser, child, "a rule or another table"),
        (superuser, LEDGER + rule, "a rule or another table"),  # last: PostgreSQL remembers it
    ):
        connection.execute(declaration.encode())
        found = find_obstacle(app._database, TABLES)
        said = told and f"rows of account cannot be put back alone, because of {told}"
        assert found == said, declaration
        connection.execute("drop function if exists write cascade; drop table ledger cascade")
    superuser.close()
    other.close()


@rule("M50")
def test_rows_are_put_back_to_the_last_digit_and_its_job_is_forgotten(
    app: rota.App, role: str, connection: Connection
) -> None:
    connection.execute(
        "create table price (t numeric(38, 18), note jsonb, double int generated always as (2) "
        "stored); insert into price values (12345678901234567890.123456789012345678, 'null')"
    )
    earlier, job = app.enqueue("earlier").id, app.enqueue("transfer").id
    names = ["transfer", "price", "account"]
    before = read_tables(app._database, names)
    for one in (app, rota.App(role)):
        connection.execute("update price set t = t + 1e-18, note = null")
        connection.execute(f"{MARK.partition(' on ')[0]}; {DEBIT}".encode())
        connection.execute("delete from transfer")
        assert read_tables(app._database, names) != before
        begin_again(one._database, job, before)
        assert read_tables(app._database, names) == before
    assert [one.id for one in app.find()] == [earlier]


@rule("M50")
def test_only_what_two_runs_leave_the_same_is_compared() -> None:
    def rows(*found: tuple[str, str]) -> dict[str, list[Row]]:
        return {"t": [Row(f"({id_},{name})", {"id": id_, "name": name}) for id_, name in found]}

    empty, first, again = rows(), rows(("1", "ada")), rows(("2", "ada"))
    assert find_stable(empty, first, first) == {"t": ["id", "name"]}
    assert find_stable(empty, first, again) == {"t": ["name"]}, "the number is of a sequence"
    before, after = rows(("1", "100")), rows(("1", "90"))
    assert find_stable(before, after, before) is None, "its mark stands in another table"
    assert find_stable(empty, first, rows(("2", "ada"), ("3", "bob"))) is None


# The whole


@pytest.mark.nightly
@rule("M50")
def test_a_debit_without_its_credit_is_told(app: rota.App, database: str) -> None:
    job = app.job("transfer")(with_psycopg(database))
    with pytest.raises(AssertionError, match="a run of 'transfer' that is killed before line") as e:
        run_twice(job.new(), tables=TABLES)
    head, *told = str(e.value).split("\n")
    assert head.endswith("test_run_killed.py is not made good:")
    assert told == ["  table account: 1 row more: (bob,0)", "  table account: 1 row gone: (bob,10)"]


@pytest.mark.nightly
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

    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) "
        "values ('web:1', 'web', 1, '1', '1', '{}', '{}')"
    )
    with pytest.warns(UserWarning, match="worker web:1 has worked here within the hour"):
        run_twice(transfer.new(), tables=TABLES)
    assert runs == [1, 1], "it was not killed"
    assert balances(connection) == [("ada", 90), ("bob", 10)]


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
@rule("M50")
def test_a_table_that_is_not_named_is_warned_of(app: rota.App, database: str) -> None:
    transfer = app.job("transfer")(with_psycopg(database))
    with pytest.warns(UserWarning, match="tells nothing of 'transfer' .*name all tables"):
        run_twice(transfer.new(), tables=["account"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_twice(transfer.new())
