"""`rota.testing.run_twice` kills a handler in its calls of Rota, and says what stays undone."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.testing import run_twice
from rota.testing.kills import PLACES_MAX, Killed, KilledRun
from tests.support.rules import rule

Context = rota.Context
Connection = psycopg.Connection[TupleRow]
DEBIT = "update public.account set balance = balance - 10 where name = 'ada'"
CREDIT = "update public.account set balance = balance + 10 where name = 'bob'"
MARK = "insert into public.transfer values (7) on conflict do nothing"


@pytest.fixture(autouse=True)
def accounts(connection: Connection) -> None:
    """The application's tables."""
    connection.execute(
        """
        create table public.account (name text primary key, balance int);
        insert into public.account values ('ada', 100), ('bob', 0);
        create table public.transfer (number int primary key);
        """
    )


def in_a_process() -> None:
    """What no test runs: a worker with another type's handler in a process refuses what it cannot
    import."""


@rule("M50", "M54")
def test_a_handler_is_killed_before_each_commit_of_rotas(
    app: rota.App, connection: Connection
) -> None:
    app.job("in_a_process", process=True)(in_a_process)
    runs: list[list[str]] = []

    @app.job("mail")
    def mail() -> None: ...

    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        runs.append([])
        mail.using(key="once").enqueue()
        runs[-1].append("mail")
        ctx.effect("charge").call(runs[-1].append, "charge")
        ctx.step("debit", runs[-1].append, "debit")
        with ctx.transaction() as own:
            own.execute(DEBIT)
            runs[-1].append("finish")

    run_twice(transfer.new(), tables=["account"])
    assert runs == [
        *([], []),
        *(["mail"], ["mail"]),
        *(["mail", "charge", "debit"], ["mail", "debit"]),
        *(["mail", "debit", "finish"], ["mail", "finish"], ["mail", "finish"]),
    ]
    [(left,)] = connection.execute("select balance from account where name = 'ada'").fetchall()
    assert left == 90, "only the last run was committed"
    [job] = app.find(job_type="transfer")
    assert job.status == "succeeded"


@rule("M50")
def test_what_a_handler_does_again_before_an_effect_is_told(app: rota.App, database: str) -> None:
    @app.job("transfer", takes_context=True)
    async def transfer(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(database) as own:
            await own.execute(DEBIT)
        async with ctx.effect("credit") as effect:
            assert not effect.done

    with pytest.raises(AssertionError) as told:
        run_twice(transfer.new(), tables=["account"])
    assert str(told.value) == (
        "a second run of 'transfer' up to effect 'credit' is not harmless:\n"
        "  table account: 1 row more: (ada,80)\n"
        "  table account: 1 row gone: (ada,90)"
    )


@pytest.mark.nightly
@rule("M50")
def test_a_step_whose_work_is_not_harmless_twice_is_told(app: rota.App, database: str) -> None:
    def debit() -> None:
        with psycopg.connect(database) as own:
            own.execute(DEBIT)

    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        ctx.step("debit", debit)

    with pytest.raises(AssertionError, match=r"up to the result of step 'debit' .*\n.*\(ada,80\)"):
        run_twice(transfer.new(), tables=["account"])


@pytest.mark.nightly
@rule("M50")
def test_a_job_that_a_killed_run_never_enqueues_is_told(app: rota.App, database: str) -> None:
    @app.job("mail")
    def mail() -> None: ...

    @app.job("transfer")
    def transfer() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            if own.execute(MARK).rowcount:
                mail.enqueue()

    with pytest.raises(AssertionError, match="'transfer' does not come to enqueue 1, before which"):
        run_twice(transfer.new())


@pytest.mark.nightly
@rule("M50")
def test_a_next_run_that_fails_is_told_with_its_error(app: rota.App, database: str) -> None:
    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        with psycopg.connect(database, autocommit=True) as own:
            own.execute(MARK.partition(" on ")[0])
        ctx.step("debit", int)

    failed = r"the run after a kill before the result of step 'debit' did not .*UniqueViolation"
    with pytest.raises(AssertionError, match=failed):
        run_twice(transfer.new())


@pytest.mark.nightly
@rule("M50")
def test_a_handler_is_not_killed_where_a_person_would_decide(app: rota.App) -> None:
    runs = []

    @app.job("mail")
    def mail() -> None: ...

    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        runs.append(1)
        ctx.effect("charge").call(lambda: mail.enqueue().id)

    run_twice(transfer.new())
    assert len(runs) == 4, "before the effect, not in it"


@pytest.mark.nightly
@rule("M50")
def test_what_a_killed_handler_had_open_is_closed(app: rota.App, database: str) -> None:
    @app.job("transfer", takes_context=True)
    def transfer(ctx: Context) -> None:
        own = psycopg.connect(database)
        own.execute(DEBIT)
        ctx.step("debit", int)
        own.rollback()
        own.close()

    @app.job("transfer_later", takes_context=True)
    async def transfer_later(ctx: Context) -> None:
        own = await psycopg.AsyncConnection.connect(database)
        await own.execute(DEBIT)
        await ctx.step("debit", asyncio.sleep, 0)
        await own.rollback()
        await own.close()

    run_twice(transfer.new(), tables=["account"])
    run_twice(transfer_later.new(), tables=["account"])


@rule("M50")
def test_a_handler_is_killed_once_in_a_run_and_at_ten_places_in_all() -> None:
    run = KilledRun(1, {str(place) for place in range(PLACES_MAX - 1)})
    for _ in range(2):  # what its other threads do comes too late
        with pytest.raises(Killed), run.around_enqueue([]):
            pass
    with KilledRun(1, {str(place) for place in range(PLACES_MAX)}).around_enqueue([]):
        pass
