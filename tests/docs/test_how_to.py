"""The recipes of docs/how-to: each page shows a file of examples/how-to as it is, is short, and
does what it says, also after a crash, twice and late."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
import uvicorn
from fastapi.testclient import TestClient
from playwright.sync_api import expect, sync_playwright
from psycopg.rows import TupleRow

import rota
from rota.declare.options import JobOptions, UsingOptions
from rota.testing import run_twice
from tests.docs.reader import ROOT, Reader, list_files, read_page
from tests.support.post import posting
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.web import serving

EXAMPLES = ROOT / "examples" / "how-to"
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
WORDS_MAX = 900
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

Connection = psycopg.Connection[TupleRow]
Load = Callable[[str], ModuleType]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.*")), ids=lambda file: file.name)
def test_a_recipe_is_on_its_page_as_it_is(file: Path) -> None:
    page = read_page(f"{file.stem.replace('_', '-')}.md")
    assert list_files(page)[file.name] == file.read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_short(page: Path) -> None:
    assert len(BLOCK.sub("", page.read_text("utf-8")).split()) <= WORDS_MAX


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["nightly-report.md", "export-with-progress-bar.md", "double-click.md", "load-test.md"],
)
def test_a_reader_of_the_page_sees_what_it_shows(
    name: str, server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    with posting() as post, Reader(tmp_path, server, empty_database) as reader:
        reader.environment["ROTA_DATABASE_URL"] = empty_database
        page = read_page(name).replace("SMTP_HOST=localhost", f"SMTP_HOST=127.0.0.1:{post.port}")
        reader.follow(page)
    with psycopg.connect(empty_database) as connection:
        query = "select count(*) from pg_namespace where nspname = 'rota_load_test'"
        assert connection.execute(query).fetchone() == (0,)


@pytest.fixture
def load(
    database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Load]:
    """Imports a recipe whose App is on the test's database, after it has made its tables there."""
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    monkeypatch.chdir(tmp_path)
    apps: list[rota.App] = []

    def load(name: str) -> ModuleType:
        tables = list_files(read_page(f"{name.replace('_', '-')}.md")).get("tables.sql")
        if tables is not None:
            connection.execute(tables.encode())
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        module.app.migrate()
        module.app.sync()
        apps.append(module.app)
        return module

    yield load
    for app in apps:
        app.close()


def ask(connection: Connection, query: str) -> list[Any]:
    return connection.execute(query.encode()).fetchall()


def make_due(connection: Connection) -> None:
    """What waits for its time is due."""
    connection.execute("update rota.job set run_at = now() where status in ('queued', 'failed')")


# Nightly report


@rule("M52", "M53", "M82")
def test_a_nightly_report_is_of_the_day_before_its_scheduled_time_and_is_mailed_once(
    load: Load, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with posting() as post:
        monkeypatch.setenv("SMTP_HOST", f"127.0.0.1:{post.port}")
        recipe = load("nightly_report")
        # A minute before midnight in Stockholm belongs to the day, a minute after it does not.
        connection.execute("insert into sale values ('tea', 1, '2026-01-14 22:59+00')")
        connection.execute("insert into sale values ('tea', 7, '2026-01-14 23:01+00')")
        connection.execute(
            "insert into rota.job (job_type, schedule, scheduled_for)"
            " values ('sales_report', 'sales-report', '2026-01-15 01:00+00')"
        )
        assert recipe.app.drain().succeeded == 1
        file = tmp_path / "sales-2026-01-14.csv"
        assert file.read_text() == "product,cents\nmug,2500\ntea,1\n"
        run_twice(recipe.sales_report.new(day=recipe.date(2026, 1, 14)))
        run_twice(recipe.sales_report.new(day=recipe.date(2026, 1, 13)))
        assert [mail["Subject"] for mail in post.taken] == ["sales-2026-01-14", "sales-2026-01-13"]


@rule("M52")
def test_a_report_that_the_mail_server_may_have_is_mailed_again(
    load: Load, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with posting() as post:
        answers = ["drop", None]
        post.data = lambda address, time: answers.pop(0)
        monkeypatch.setenv("SMTP_HOST", f"127.0.0.1:{post.port}")
        recipe = load("nightly_report")
        recipe.sales_report.enqueue(day=recipe.date(2026, 1, 14))
        assert recipe.app.drain().failed == 1
        make_due(connection)
        assert recipe.app.drain().succeeded == 1
        assert len(post.taken) == 2


# Export with a progress bar


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="CHROMIUM IS NOT INSTALLED: the bar is not looked at")
@rule("M72")
def test_the_bar_of_an_export_fills_and_a_second_click_gets_the_same_file(
    load: Load, connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EXPORT_SECRET", "at least sixteen characters")
    recipe = load("export_with_progress_bar")
    config = uvicorn.Config(recipe.site, port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started and time.monotonic() < deadline:
            thread.join(0.01)
        [port] = [socket.getsockname()[1] for one in server.servers for socket in one.sockets]
        with ThreadPoolExecutor(1) as apart, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page()
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"http://127.0.0.1:{port}/")
            page.click("button")
            expect(page.get_by_role("status")).to_have_text("queued")
            page.click("button")
            apart.submit(recipe.app.drain).result()
            expect(page.get_by_role("status")).to_have_text("ready", timeout=30_000)
            bar = page.locator("progress")
            assert (bar.get_attribute("max"), bar.get_attribute("value")) == ("3", "3")
            with page.expect_download() as found:
                page.click("a")
            lines = Path(found.value.path()).read_text().splitlines()
            assert (lines[0], lines[1], len(lines)) == ("id,cents", "1,1", 25_001)
            assert complaints == []
            browser.close()
    finally:
        server.should_exit = True
        thread.join()
    assert len(recipe.reports.list()) == 1


# Import of a file

GOOD = b"email,name\nada@example.org,Ada\nbo@example.org,Bo\n"


@rule("M54")
def test_an_import_writes_all_rows_once_and_the_same_file_again_is_the_same_job(
    load: Load, connection: Connection
) -> None:
    recipe = load("import_file")
    with connection.transaction():
        first = recipe.take_file(connection, "a.csv", GOOD)
        second = recipe.take_file(connection, "a.csv", GOOD)
    assert (second.id, second.created) == (first.id, False)
    assert recipe.app.drain().succeeded == 1
    assert recipe.app.get(first.id).result == 2
    run_twice(recipe.import_contacts.new(1), tables=["contact"])
    with connection.transaction():
        assert recipe.take_file(connection, "a.csv", GOOD).created, "it is over: a new import"
    assert recipe.app.drain().succeeded == 1
    assert len(ask(connection, "select from contact")) == 2


@rule("M41")
def test_an_import_of_a_wrong_file_names_its_lines_and_writes_nothing(
    load: Load, connection: Connection
) -> None:
    recipe = load("import_file")
    with connection.transaction():
        wrong = recipe.take_file(connection, "a.csv", GOOD + b"nobody,No\n,None\n")
        no_text = recipe.take_file(connection, "a.xlsx", b"PK\x03\x04\xff")
    assert recipe.app.drain().dead == 2
    error = recipe.app.get(wrong.id).last_error
    assert "2 lines have no address in the column email: 4, 5" in error
    assert "this is no CSV in UTF-8" in recipe.app.get(no_text.id).last_error
    assert ask(connection, "select from contact") == []
    with connection.transaction():
        assert recipe.take_file(connection, "a.csv", GOOD).created


@rule("M1")
def test_the_progress_of_an_import_is_that_of_its_rows(load: Load, connection: Connection) -> None:
    recipe = load("import_file")
    lines = "".join(f"{number}@example.org,N\n" for number in range(2500))
    with connection.transaction():
        job = recipe.take_file(connection, "a.csv", f"email,name\n{lines}".encode())
    recipe.app.drain()
    done = recipe.app.get(job.id)
    assert (done.result, done.progress.total) == (2500, 2500)


# Double click


@rule("M51")
def test_clicks_at_the_same_moment_are_one_job(
    load: Load, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as provider:
        provider.headers["Charge-Id"] = "c-1"
        monkeypatch.setenv("PROVIDER", provider.url)
        recipe = load("double_click")
        with ThreadPoolExecutor(8) as clicks:
            pressed = list(clicks.map(recipe.charge.enqueue, [17] * 8))
        assert len({one.id for one in pressed}) == sum(one.created for one in pressed) == 1
        assert recipe.app.drain().succeeded == 1
        with TestClient(recipe.site) as client:
            assert client.post("/orders/17/pay").json()["created"] is False
            first, second = (client.post("/accounts/42/export").json() for _ in range(2))
            assert (second["id"], second["created"]) == (first["id"], False)
            assert recipe.app.drain().succeeded == 1
            assert client.post("/accounts/42/export").json()["created"] is True
        run_twice(recipe.charge.new(18))
        assert [asked.headers["order"] for asked in provider.asked] == ["17", "18"]
        assert provider.asked[0].headers["idempotency-key"] == "charge:17"


# Debounce


@rule("M51")
def test_changes_in_a_row_are_one_job_after_the_last_of_them(
    load: Load, connection: Connection
) -> None:
    recipe = load("debounce")
    for text in ("a", "b", "c"):
        with connection.transaction():
            recipe.save_doc(connection, 7, text)
        connection.execute("update rota.job set run_at = run_at - interval '30 s'")
    [[waits]] = ask(connection, "select run_at - now() > interval '20 s' from rota.job")
    assert waits, "each change begins the minute anew"
    assert recipe.app.drain().claimed == 0
    make_due(connection)
    assert recipe.app.drain().succeeded == 1
    assert ask(connection, "select * from search") == [(7, "c")]


@rule("M51")
def test_notices_join_a_digest_that_does_not_move_and_one_while_it_runs_is_not_lost(
    load: Load, connection: Connection
) -> None:
    recipe = load("debounce")
    for text in ("a", "b"):
        with connection.transaction():
            recipe.notify(connection, 42, text)
    make_due(connection)
    [(id_, claims)] = ask(
        connection, "select id, claims from rota.claim('default', '{make_digest}', 'w')"
    )
    with connection.transaction():
        recipe.notify(connection, 42, "c")
    assert len(ask(connection, "select from rota.job")) == 2
    connection.execute("select rota.hand_back(%s, %s)", [id_, claims])
    make_due(connection)
    assert recipe.app.drain().succeeded == 2
    assert ask(connection, "select * from digest") == [(42, "a\nb\nc")]
    connection.execute("delete from rota.worker")  # that of this test, which is no other process
    run_twice(recipe.make_digest.new(42), tables=["notice", "digest"])


# Reminder that is called off


@rule("M20", "M52")
def test_a_reminder_is_called_off_by_the_payment_and_only_if_that_commits(
    load: Load, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with posting() as post:
        monkeypatch.setenv("SMTP_HOST", f"127.0.0.1:{post.port}")
        recipe = load("cancel_reminder")
        with connection.transaction():
            for cart in (1, 2, 3):
                recipe.fill_cart(connection, cart, f"user{cart}@example.org")
        with connection.transaction():
            recipe.pay_cart(connection, 1)
        with connection.transaction():
            recipe.pay_cart(connection, 2)
            raise psycopg.Rollback
        connection.execute("update cart set paid = true where id = 3")  # as if it came too late
        make_due(connection)
        assert recipe.app.drain().succeeded == 1
        assert post.addresses == ["user2@example.org"]
        found = {job.payload["cart"]: str(job.status) for job in recipe.app.find(since="1h")}
        assert found == {1: "cancelled", 2: "succeeded", 3: "cancelled"}
        with connection.transaction():
            recipe.pay_cart(connection, 2)  # after the mail: no error
        connection.execute("update cart set paid = false")
        run_twice(recipe.remind.new(3))
        assert post.addresses == ["user2@example.org", "user3@example.org"]


@rule("M36")
def test_a_reminder_that_is_a_day_late_is_dropped(load: Load, connection: Connection) -> None:
    recipe = load("cancel_reminder")
    with connection.transaction():
        recipe.fill_cart(connection, 1, "user@example.org")
    connection.execute(
        "update rota.job set run_at = run_at - interval '4 d 1 h',"
        " expires_at = expires_at - interval '4 d 1 h'"
    )
    assert recipe.app.drain().claimed == 0
    assert [str(job.status) for job in recipe.app.find(since="1h")] == ["cancelled"]


# A tenant and a session for each job


@rule("M2")
def test_each_job_works_on_the_schema_of_the_tenant_that_enqueued_it(
    load: Load, connection: Connection
) -> None:
    recipe = load("tenant_and_session")
    jobs = [recipe.place_order("acme", "mug"), recipe.place_order("globex", "tea")]
    with pytest.raises(LookupError):
        recipe.app.enqueue("confirm", {"order": 1}, connection)
    connection.execute(
        "insert into rota.job (job_type, payload) values ('confirm', '{\"order\": 1}')"
    )
    assert recipe.app.drain(concurrency=1).succeeded == 2
    assert [recipe.app.get(job).result for job in jobs] == ["acme: mug", "globex: tea"]
    assert recipe.app.find(status="failed") != [], "without a tenant there is no session"
    for schema in ("acme", "globex"):
        assert ask(connection, f"select confirmed from {schema}.orders") == [(True,)]
    recipe.find_engine(recipe.app.url).dispose()


# A hand-written queue beside Rota


@rule("M15", "M32")
def test_the_statements_of_both_queues_do_the_same_but_for_a_late_worker(
    connection: Connection,
) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", read_page("hand-written-queue.md"), re.DOTALL)
    hand = [block for block in blocks if not block.startswith("-- Rota")]
    table, enqueue, claim, done, retry, recover = hand
    for statement in (table, enqueue):
        connection.execute(statement.encode())
    assert [row[0] for _ in range(2) for row in ask(connection, claim)] == [1, 2]
    for statement in (done, retry, recover):
        connection.execute(statement.encode())
    enqueue, claim, done, retry = (block for block in blocks if block.startswith("-- Rota"))
    connection.execute(enqueue.encode())
    assert [row[:2] for _ in range(2) for row in ask(connection, claim)] == [(1, 1), (2, 1)]
    for statement in (done, retry):
        connection.execute(statement.encode())
    state = "select id, status, attempts, run_at > now() from {} order by id"
    same = ask(connection, state.format("rota.jobs"))
    assert same == ask(connection, state.format("jobs"))
    assert [row[1] for row in same] == ["succeeded", "failed"]

    # Both jobs 2 are lost and claimed again. Then their first workers say that they are done.
    connection.execute("update jobs set run_at = now() where id = 2")
    [[id_, *_]] = ask(connection, hand[2])
    assert id_ == 2
    connection.execute(hand[3].replace("id = 1", "id = 2").encode())
    assert ask(connection, "select status from jobs where id = 2") == [("succeeded",)]
    make_due(connection)
    [[id_, claims, *_]] = ask(connection, claim)
    assert (id_, claims > 1) == (2, True)
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(done.replace("(1, 1,", "(2, 1,").encode())
    assert refused.value.sqlstate == "RT001"
    assert ask(connection, "select status from rota.jobs where id = 2") == [("running",)]


# Which tool?


def test_the_options_of_the_table_of_tools_are_there() -> None:
    named = set(re.findall(r"`(\w+)=`", read_page("which-tool.md")))
    others = {"capacity", "chunk", "lifespan"}
    assert others <= named
    assert named - others <= JobOptions.__annotations__.keys() | UsingOptions.__annotations__.keys()
    assert "capacity" in rota.Ordered.__init__.__annotations__
    assert "lifespan" in rota.App.__init__.__annotations__
