"""`rota.testing.run_twice`: a second run is harmless, or the test says what it did."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.testing import arun_twice, run_twice
from tests.support.rules import rule

Context = rota.Context
Connection = psycopg.Connection[TupleRow]


@pytest.fixture(autouse=True)
def users(connection: Connection) -> None:
    """A table of the application's."""
    connection.execute("create table public.app_user (name text, mails int default 0)")
    connection.execute("insert into public.app_user values ('ada')")


def count_mail(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update public.app_user set mails = mails + 1")


@rule("M50")
def test_a_second_run_that_changes_a_table_is_told_with_the_rows(
    app: rota.App, database: str
) -> None:
    @app.job("mail")
    def mail() -> None:
        count_mail(database)

    with pytest.raises(AssertionError) as told:
        run_twice(mail.new(), tables=["app_user"])
    assert str(told.value) == (
        "a second run of 'mail' is not harmless:\n"
        "  table app_user: 1 row more: (ada,2)\n"
        "  table app_user: 1 row gone: (ada,1)"
    )


@pytest.mark.nightly
@rule("M50")
def test_a_guarded_handler_passes_and_its_first_success_is_lost(
    app: rota.App, database: str, connection: Connection
) -> None:
    runs = []

    @app.job("mail", takes_context=True)
    def mail(ctx: Context) -> None:
        runs.append(ctx.job.claims)
        with ctx.effect("mail:ada") as effect:
            if not effect.done:
                count_mail(database)

    run_twice(mail.new(), tables=["public.app_user"])
    assert len(runs) == 4, "two were killed before the effect"
    assert connection.execute("select name, mails from app_user").fetchall() == [("ada", 1)]
    [job] = app.find(job_type="mail")
    assert (job.status, job.attempts, job.claims) == ("succeeded", 3, runs[-1])


@pytest.mark.nightly
@rule("M50")
def test_a_job_that_is_enqueued_again_is_told_and_one_with_a_key_is_not(app: rota.App) -> None:
    @app.job("next")
    def follow() -> None: ...

    @app.job("forgets")
    def forgets() -> None:
        follow.enqueue()

    @app.job("keeps")
    def keeps() -> None:
        follow.using(key="once").enqueue()

    with pytest.raises(AssertionError, match="1 job of type 'next' enqueued again"):
        run_twice(forgets.new())
    run_twice(keeps.new())


@rule("M50")
def test_an_effect_with_another_key_each_time_is_told(app: rota.App) -> None:
    @app.job("mail", takes_context=True)
    def mail(ctx: Context) -> None:
        with ctx.effect(f"mail:{ctx.job.claims}"):
            pass

    with pytest.raises(AssertionError, match="'mail' does not come to effect 'mail:1', before"):
        run_twice(mail.new())


@rule("M50")
def test_a_job_that_another_one_stands_for_is_refused(app: rota.App) -> None:
    @app.job("mail")
    def mail() -> None:
        raise AssertionError("it must not run")

    taken = mail.using(key="mail:7").enqueue()
    with pytest.raises(rota.UsageError, match=f"job {taken.id} .queued. has the id"):
        run_twice(mail.new().using(key="mail:7"))


@rule("M50", "M52")
def test_a_block_that_does_not_ask_whether_its_effect_is_done_is_told(app: rota.App) -> None:
    @app.job("mail", takes_context=True)
    def mail(ctx: Context) -> None:
        with ctx.effect("mail:ada"):
            pass  # it would send again

    with pytest.raises(AssertionError, match="effect 'mail:ada': its block did not ask"):
        run_twice(mail.new())


@rule("M50")
def test_a_run_that_does_not_succeed_is_told_with_its_error(app: rota.App) -> None:
    @app.job("fails")
    def fails() -> None:
        raise ValueError("no customer 7")

    @app.job("fails_later", takes_context=True)
    def fails_later(ctx: Context) -> None:
        if ctx.job.claims > 1:
            raise ValueError("it is there already")

    with pytest.raises(AssertionError, match=r"first run .* failed: ValueError: no customer 7"):
        run_twice(fails.new())
    with pytest.raises(AssertionError, match=r"second run .* failed: ValueError: it is there al"):
        run_twice(fails_later.new())


@rule("M50")
async def test_it_runs_on_a_loop_and_refuses_what_it_cannot_compare(
    database: str, tmp_path: Path
) -> None:
    app = rota.App(database)

    @app.job("touch")
    async def touch(path: str) -> None:
        with rota.write_file(path) as file:
            file.write(b"x")

    await arun_twice(touch.new(str(tmp_path / "x")), tables=["app_user"])
    with pytest.raises(rota.UsageError, match="there is no table 'no_such'"):
        await arun_twice(touch.new(str(tmp_path / "x")), tables=["no_such"])
    with pytest.raises(rota.UsageError, match="await arun_twice"):
        run_twice(touch.new(str(tmp_path / "x")))
    with pytest.raises(rota.UsageError, match="takes a job such as"):
        run_twice(touch)  # type: ignore[arg-type]
    await app.aclose()
