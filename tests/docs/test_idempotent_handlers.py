"""The blocks of idempotent-handlers.md, effects.md, steps.md and test-a-second-run.md work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.testing import run_twice
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.web import serving

SECOND_RUN = read_page("test-a-second-run.md")
PAGES = [read_page(f"{name}.md") for name in ("effects", "steps", "idempotent-handlers")]
EFFECT, BLOCK, ABOUT, STEPS, IN_A_TRANSACTION, FILE, TWICE = re.findall(
    r"```python\n(.*?)```", "".join([*PAGES, SECOND_RUN]), re.DOTALL
)
RESOLVE, FRESH = re.findall(r"```sh\n(.*?)```", "".join(PAGES), re.DOTALL)


def declare(app: rota.App, block: str, **names: Any) -> dict[str, Any]:
    names = {"app": app, "rota": rota, **names}
    exec(compile(block, "page.md", "exec"), names)  # the page is ours
    return names


@rule("M52")
def test_the_mail_of_the_page_is_sent_once_for_two_jobs(database: str) -> None:
    app = rota.App(database)
    with serving() as provider:
        provider.headers["Message-ID"] = "m-7"
        welcome = declare(app, EFFECT, PROVIDER=provider.url)["welcome"]
        for _ in range(2):
            welcome.enqueue(42)
            assert app.drain().succeeded == 1
        assert [asked.body for asked in provider.asked] == [b"to=42"]
        [asked] = provider.asked
        assert asked.headers["idempotency-key"] == "welcome_email:user:42"
    [effect] = app.effects.find("welcome_email:user:42")
    assert (effect.status, effect.result) == ("done", "m-7")
    app.close()


@rule("M70")
def test_the_receipt_of_the_page_is_found_by_its_address_until_it_is_forgotten(
    database: str,
) -> None:
    app = rota.App(database)
    declare(app, ABOUT, send_welcome=lambda user, key: "m-8")["receipt"].enqueue(42, "a@b.example")
    assert app.drain().succeeded == 1
    to = {"to": "a@b.example"}
    assert [one.key for one in app.effects.find(about=to)] == ["receipt:user:42"]
    assert app.effects.forget(to, why="she asked") == 1
    assert app.effects.find(about=to) == []
    app.close()


@rule("M52", "M87")
def test_uncertain_effects_are_listed_and_resolved_by_the_commands_of_the_page(
    database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path
) -> None:
    app = rota.App(database)
    sent: list[int] = []

    @app.job("welcome", takes_context=True, max_attempts=1)
    def welcome(ctx: rota.Context, user: int) -> None:
        ctx.effect(f"welcome_email:user:{user}").call(send, user)

    def send(user: int) -> None:
        sent.append(user)
        if sent.count(user) == 1:
            raise RuntimeError("there is no response")

    app.sync()
    connection.execute("select setval(pg_get_serial_sequence('rota.job', 'id'), 41)")
    assert [welcome.enqueue(user).id for user in (42, 43)] == [42, 43]
    app.drain()
    assert sorted(sent) == [42, 43]
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    lines = [shlex.split(line, comments=True) for line in RESOLVE.splitlines()]
    listed, *_ = [command.ok(*line[1:]).out for line in lines]
    assert all(f"welcome_email:user:{user}" in listed for user in (42, 43))
    [done] = app.effects.find("welcome_email:user:42")
    assert (done.status, done.result) == ("done", "m-7")
    app.drain()
    assert sorted(sent) == [42, 43, 43]
    app.close()


@rule("M44", "M87")
def test_a_dead_job_starts_over_by_the_command_of_the_page(
    database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path
) -> None:
    app = rota.App(database)
    done: list[str] = []

    @app.job("checkout", takes_context=True)
    def checkout(ctx: rota.Context) -> None:
        ctx.step("reserve", done.append, "reserve")
        if len(done) == 1:
            raise rota.Dead("no such account")

    app.sync()
    connection.execute("select setval(pg_get_serial_sequence('rota.job', 'id'), 6)")
    checkout.enqueue()
    app.drain()
    CommandLine(tmp_path, ROTA_DATABASE_URL=database).ok(*shlex.split(FRESH, comments=True)[1:])
    assert app.drain().succeeded == 1
    assert done == ["reserve", "reserve"]
    app.close()


@rule("M44")
def test_the_steps_of_the_page_run_and_keep_their_results(database: str) -> None:
    app = rota.App(database)
    declare(app, STEPS)["checkout"].enqueue(7)
    assert app.drain().succeeded == 1
    assert app.get(1).result == 4200
    kept = [(step.key, step.place, step.result) for step in app.effects.find(job=1)]
    assert kept == [("reserve", 1, "reservation of 7"), ("charge", 2, 4200)]
    app.close()


@rule("M53")
def test_the_file_of_the_page_is_written_once(database: str, tmp_path: Path) -> None:
    app = rota.App(database)
    report = declare(app, FILE, FOLDER=tmp_path)["sales_report"]
    for _ in range(2):
        report.enqueue("2026-01-14")
        assert app.drain().succeeded == 1
    [file] = tmp_path.iterdir()
    assert (file.name, file.read_text()) == ("sales-2026-01-14.csv", "day,sum\n")
    [effect] = app.effects.find("file_generated:sales_report:2026-01-14")
    assert (effect.job, effect.result) == (1, {"path": str(file), "bytes": 8})
    app.close()


def test_the_transaction_of_the_page_writes_one_invoice_and_enqueues_the_next(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    connection.execute("create table public.invoice (customer int)")
    app = rota.App(database)
    names: dict[str, Any] = {"app": app, "rota": rota}
    exec(IN_A_TRANSACTION, names)  # the page is ours
    names["bill"].enqueue(812)
    assert app.drain().succeeded == 1
    assert connection.execute("select customer from public.invoice").fetchall() == [(812,)]
    [following] = app.find(status="queued")
    assert following.payload == {"customer": 812}
    app.close()


@rule("M50")
def test_a_second_run_of_each_handler_of_the_page_is_harmless(
    database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path
) -> None:
    connection.execute("create table public.invoice (customer int)")
    app = rota.App(database)
    with serving() as provider:
        provider.headers["Message-ID"] = "m-7"
        names = declare(app, EFFECT, PROVIDER=provider.url)
        run_twice(names["welcome"].new(42))
        run_twice(declare(app, BLOCK, send_welcome=names["send_welcome"])["goodbye"].new(42))
        receipt = declare(app, ABOUT, send_welcome=names["send_welcome"])["receipt"]
        run_twice(receipt.new(42, "ada@example.org"))
        assert len(provider.asked) == 3
    run_twice(declare(app, STEPS)["checkout"].new(7))
    run_twice(declare(app, FILE, FOLDER=tmp_path)["sales_report"].new("2026-01-14"))
    run_twice(declare(app, IN_A_TRANSACTION)["bill"].new(812), tables=["invoice"])
    app.close()


@rule("M50")
def test_the_test_of_the_page_fails_with_the_message_of_the_page(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    connection.execute("create table public.reminder (user_id int, at timestamp)")
    app = rota.App(database)

    @app.job("mail")
    def mail() -> None: ...

    @app.job("remind")
    def remind(user: int) -> None:
        connection.execute("insert into reminder values (%s, '2026-01-14 09:30')", [user])
        mail.enqueue()

    [said] = re.findall(r"```text\n(a second run of .*?)```", SECOND_RUN, re.DOTALL)
    test = declare(app, TWICE, remind=remind)["test_a_second_run_of_the_handler_is_harmless"]
    with pytest.raises(AssertionError) as told:
        test()
    assert sorted(str(told.value).split("\n")) == sorted(said.strip().split("\n"))
    app.close()
