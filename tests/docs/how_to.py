"""What the pages of docs/how-to suppose, and what is true after them."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.test import RequestFactory
from playwright.sync_api import expect, sync_playwright

import rota
from rota.kinds import mail, report, webhook
from rota.testing import run_twice
from tests.docs.reader import ROOT, Reader, list_files, read_page
from tests.docs.supposed import follows, make_database
from tests.support.django_site import django_database
from tests.support.post import posting
from tests.support.receiver import receiving
from tests.support.server import unused_port
from tests.support.wait import eventually
from tests.support.web import serving
from tests.worker.test_dask import run_cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Otherwise a cluster of one machine listens on all its addresses. A driver needs it too."""
TEMPLATE = "rota_template"  # of tests/conftest.py
SECRET = "whsec_" + "A" * 43 + "="


def write_files(reader: Reader, page: str, *names: str) -> None:
    """Write files of another page, which this one continues."""
    for name, text in list_files(read_page(page)).items():
        if name in names or not names:
            reader.write(name, text)


@follows("arguments.md")
def store_arguments(reader: Reader) -> None:
    """What the blocks and the tables enqueue is stored and arrives as they say, or is refused."""

    def compare(shown: str) -> None:
        assert read_payload() == json.loads(shown)

    def read_payload() -> Any:
        [*_, (payload,)] = reader.ask("select payload from rota.job order by id")
        return payload

    reader.languages["json"] = compare
    reader.follow_rest()
    page = read_page("arguments.md")
    app, names, meant = reader.app, reader.names, {}
    got = names["got"] = {}

    def declare(parameter: str, name: str) -> Any:
        exec(f"def handler({parameter}): got[{name!r}] = repr(value)", names)  # the page is ours
        return app.job(name)(names["handler"])

    for annotation, passed, stored, arrives in read_rows(
        page, "annotation", "you pass", "stored", "arrives"
    ):
        given = eval(passed, names)
        declare(f"value: {annotation}", f"{annotation} {passed}").enqueue(value=given)
        # As text, because the order of the fields counts too.
        assert json.dumps(read_payload()) == json.dumps({"value": json.loads(stored)}), passed
        arrived = given if arrives == "the same" else eval(arrives, names)
        meant[f"{annotation} {passed}"] = repr(arrived)
    assert app.drain().failed == 0
    assert got == meant
    for annotation, passed, reason in read_rows(page, "annotation", "you pass", "reason"):
        declared = declare(f"value: {annotation}", f"{annotation} {passed} is refused")
        with pytest.raises(rota.PayloadError) as error:
            declared.enqueue(value=eval(passed, names))
        assert error.value.reason == reason
    for parameter, reason in read_rows(page, "parameter", "reason"):
        with pytest.raises(rota.errors.DeclarationError) as refusal:
            declare(parameter, parameter)
        assert reason in str(refusal.value)


def read_rows(page: str, *columns: str) -> list[list[str]]:
    """The rows of all tables of a page with these columns, without the marks of code."""
    head = re.escape(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    lines = "".join(re.findall(rf"^{head}((?:\|.*\|\n)+)", page, re.MULTILINE)).splitlines()
    assert lines
    cells = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines]
    return [[cell.strip("`").replace(r"\|", "|") for cell in row] for row in cells]


def make_due(reader: Reader) -> None:
    """What waits for its time is due."""
    reader.ask("update rota.job set run_at = now() where status in ('queued', 'failed')")


@follows("cancel-reminder.md")
def call_off_a_reminder(reader: Reader) -> None:
    reader.follow_rest()
    fill, pay = reader.names["fill_cart"], reader.names["pay_cart"]
    own = reader.connection
    with posting() as post:
        reader.set("SMTP_HOST", f"127.0.0.1:{post.port}")
        for cart in (1, 2, 3):
            fill(own, cart, f"user{cart}@example.org")
        pay(own, 1)
        with own.transaction(force_rollback=True):
            pay(own, 2)
        own.execute("update cart set paid = true where id = 3")  # as if it came too late
        make_due(reader)
        assert reader.app.drain().succeeded == 1
        pay(own, 2)  # after the mail: no error
        assert post.addresses == ["user2@example.org"]
    found = {job.payload["cart"]: str(job.status) for job in reader.app.find(since="1h")}
    assert found == {1: "cancelled", 2: "succeeded", 3: "cancelled"}


@follows("chunks.md")
def call_with_many(reader: Reader) -> None:
    @dataclass
    class Letter:
        issue: int
        user: int

    class Service:
        def bulk(self, docs: dict[int, str]) -> dict[int, Exception | None]:
            calls.append(docs)
            return {id_: None if text else ValueError("no text") for id_, text in docs.items()}

        def send(self, letter: Letter) -> str:
            return f"id-{letter.user}"

    calls: list[dict[int, str]] = []
    reader.names.update({"Letter": Letter, "search": Service(), "mailer": Service()})
    reader.follow_rest()
    reader.names["index_docs"].enqueue(id=9, text="")
    reader.names["send_all"].enqueue(Letter(1, 2))
    reader.app.drain()
    assert calls == [{7: "a text", 8: "the same, by its fields", 9: ""}]
    ended = [str(job.status) for job in reader.app.find(since="1h")]
    assert sorted(ended) == ["failed", "succeeded", "succeeded", "succeeded"]


@follows("database-url.md")
def read_a_secret(reader: Reader) -> None:
    reader.names["read_secret"] = lambda name: {"database-url": reader.url}[name]
    reader.follow_rest()
    assert reader.names["late"].find() == []
    reader.names["late"].close()


@follows("debounce.md")
def join_events(reader: Reader) -> None:
    reader.follow_rest()
    names, own = reader.names, reader.connection
    for text in ("a", "b", "c"):
        names["save_doc"](own, 7, text)
        own.execute("update rota.job set run_at = run_at - interval '30 s'")
    assert reader.app.drain().claimed == 0, "each change begins the minute anew"
    make_due(reader)
    assert reader.app.drain().succeeded == 1
    assert reader.ask("select * from search") == [(7, "c")]
    for text in ("a", "b"):
        names["notify"](own, 42, text)
    make_due(reader)
    assert reader.app.drain().succeeded == 1
    assert reader.ask("select * from digest") == [(42, "a\nb")]


@follows("double-click.md", is_nightly=True)
def click_twice(reader: Reader) -> None:
    with serving() as provider:
        provider.headers["Charge-Id"] = "c-1"
        reader.set("PROVIDER", provider.url)
        reader.follow_rest()
        charge = reader.names["charge"]
        assert [charge.enqueue(17).created for _ in range(2)] == [True, False]
        assert reader.app.drain().succeeded == 2
        run_twice(charge.new(18))
        keys = [asked.headers["idempotency-key"] for asked in provider.asked]
        assert keys == ["charge:17", "charge:18"]
        site = f"http://127.0.0.1:{reader.ports['8000']}"
        assert httpx.post(f"{site}/accounts/42/export").json()["created"] is True
        assert httpx.post(f"{site}/orders/17/pay").json()["created"] is False


@follows("enqueue-by-name.md")
def make_a_statement(reader: Reader) -> None:
    @reader.app.job("welcome")
    def welcome(user_id: int) -> None: ...

    reader.names["welcome"] = welcome
    reader.follow_rest()
    [shown] = re.findall(r"```sql\n(.*?)  …", read_page("enqueue-by-name.md"), re.DOTALL)
    assert reader.names["sql"].startswith(shown)


@follows("export-with-progress-bar.md", is_nightly=True)
def press_a_button(reader: Reader) -> None:
    reader.follow_rest()
    if CHROMIUM is None:
        pytest.skip("CHROMIUM IS NOT INSTALLED: the bar is not looked at")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://127.0.0.1:{reader.ports['8000']}/")
        for _ in range(2):
            page.click("button")
        expect(page.get_by_role("status")).to_have_text("ready", timeout=30_000)
        bar = page.locator("progress")
        assert (bar.get_attribute("max"), bar.get_attribute("value")) == ("3", "3")
        with page.expect_download() as found:
            page.click("a")
        lines = Path(found.value.path()).read_text().splitlines()
        assert (lines[:2], len(lines)) == (["id,cents", "1,1"], 25_001)
        assert complaints == []
        browser.close()
    assert reader.ask("select count(*) from rota.report_run") == [(1,)], "two clicks, one export"


@follows("hand-written-queue.md")
def work_by_hand(reader: Reader) -> None:
    reader.follow_to("## Claim")
    first = reader.left
    reader.follow_to("## Done")  # a worker claims both jobs
    reader.follow(first[: -len(reader.left)])
    reader.follow_rest()
    assert reader.ask("select status from jobs order by id") == [("succeeded",), ("failed",)]


@follows("import-file.md")
def import_files(reader: Reader) -> None:
    reader.follow_rest()
    good = b"email,name\nada@example.org,Ada\nbo@example.org,Bo\n"
    wrong = good + b"nobody,No\n,None\n"
    files = {"a.csv": good, "b.csv": good, "wrong.csv": wrong, "a.xlsx": b"PK\x03\x04\xff"}
    jobs = [reader.names["take_file"](reader.connection, *file) for file in files.items()]
    assert [job.created for job in jobs] == [True, False, True, True]
    ended = reader.app.drain()
    assert (ended.succeeded, ended.dead) == (1, 2)
    [done, _, refused, no_text] = [reader.app.get(job.id) for job in jobs]
    assert done.result == 2
    assert "2 lines have no address in the column email: 4, 5" in (refused.last_error or "")
    assert "this is no CSV in UTF-8" in (no_text.last_error or "")
    run_twice(reader.names["import_contacts"].new(1), tables=["contact"])
    assert reader.names["take_file"](reader.connection, "a.csv", good).created, "it is over"


@follows("kinds.md")
def read_hints(reader: Reader) -> None:
    reader.follow_to("## Rules for your own types")
    reader.write("shop.py", "import rota\nfrom stock import stock\napp = rota.App(jobs=[stock])\n")
    assert "stock/0001_tables" in reader.type("rota migrate")
    reader.ask("insert into rota.stock_item values ('tea', 7), ('milk', 2), ('oil', 1)")
    assert reader.type("rota stock low") == "milk, oil\n"
    assert reader.type("rota stock low --below 2") == "oil\n"


@follows("load-test.md", is_nightly=True)
def measure(reader: Reader) -> None:
    reader.left = reader.left.replace("load_test.py 20000", "load_test.py 1000")
    reader.follow_rest()
    found = reader.ask("select from pg_namespace where nspname = 'rota_load_test'")
    assert found == []


@follows("mail.md", is_nightly=True)
def send_mail(reader: Reader) -> None:
    reader.follow_to("## The server")
    told = reader.type("rota job 1")
    assert "succeeded" in told and "ServerUnavailable" in told and "250 OK" in told
    assert "Hello Ada, your shop is open." in reader.read_logs()
    reader.follow_to("## Attachments")
    assert "1 passed" in reader.type("pytest")
    reader.names["mail"] = mail


@follows("web-frameworks.md", is_nightly=True)
def make_sites(reader: Reader) -> None:
    reader.follow_to("## Starlette")
    reader.stop()
    forget_sign_ups(reader)
    (reader.place / "tests/test_plain.py").unlink()
    for title in ("## FastAPI with asyncpg", "## Flask"):
        reader.follow_to(title)
        reader.stop()
        forget_sign_ups(reader)
        reader.ask("drop table app_user")
        shutil.rmtree(reader.place / "shop")
    reader.follow_rest()


def forget_sign_ups(reader: Reader) -> None:
    """Let the next site of the page begin with no users, and with job 1."""
    reader.ask("truncate app_user, rota.job, rota.job_history")
    reader.ask("select setval('rota.job_id_seq', 1, false)")


@follows("find-and-resend-mail.md")
def find_mail(reader: Reader) -> None:
    with posting() as post:
        reader.ports["1025"] = str(post.port)
        write_files(reader, "mail.md")
        with reader.connection.transaction():
            reader.names["sign_up"](reader.connection, 42, "Ada", "ada@example.org")
        assert reader.app.drain().succeeded == 1
        assert [message["Subject"] for message in post.taken] == ["Welcome, Ada"]
        reader.follow_to("```sh")
        assert " sent welcome " in reader.printed
        assert reader.names["mailer"].find("ada@example.org") == []
        reader.left = reader.left.replace("resend 7", "resend 1")
        reader.follow_rest()
        assert reader.app.drain().succeeded == 1
        assert len(post.taken) == 2


@follows("nightly-report.md")
def mail_a_report(reader: Reader) -> None:
    with posting() as post:
        host = f"SMTP_HOST=127.0.0.1:{post.port}"
        reader.left = reader.left.replace("SMTP_HOST=localhost", host)
        reader.follow_rest()
        assert [message["Subject"] for message in post.taken] == ["sales-2026-01-14"]
        # A minute before midnight in Stockholm belongs to the day, a minute after it does not.
        reader.ask(
            "insert into sale values ('tea', 1, '2026-01-13 22:59+00'), "
            "('tea', 7, '2026-01-13 23:01+00'); insert into rota.job (job_type, schedule, "
            "scheduled_for) values ('sales_report', 'sales-report', '2026-01-14 01:00+00')"
        )
        reader.app.drain()
        assert (reader.place / "sales-2026-01-13.csv").read_text() == "product,cents\ntea,1\n"


@follows("progress.md")
def report_progress(reader: Reader) -> None:
    reader.names["write_page"] = lambda page: None
    reader.follow_to("Read it anywhere")
    reader.names["job_id"] = reader.names["export"].enqueue(pages=40).id
    reader.app.drain()
    reader.follow_rest()
    assert reader.printed.startswith("40 of 40 pages, at 20")


@follows("clusters.md", is_nightly=True)
def compute_on_clusters(reader: Reader) -> None:
    if sys.platform != "linux" or find_spec("distributed") is None or find_spec("ray") is None:
        pytest.skip("NOT TRIED: the page of clusters; pip install 'rota[dask]' ray, on Linux")
    (reader.place / "hosts").mkdir()
    with run_cluster(reader.place / "hosts", str(reader.place)) as scheduler:
        reader.ports["8786"] = scheduler.rpartition(":")[2]
        reader.follow_to("## Ray")
    assert reader.app.get(1).result == sum(n * n for n in range(40_000))
    records = logging.getLogRecordFactory()
    with run_ray(str(reader.place)) as reader.ports["6379"]:
        reader.environment |= LOOPBACK
        reader.follow_rest()
    job = reader.app.get(2)
    logging.setLogRecordFactory(records)  # Ray has set its own where it was imported
    assert job.result == sum(n * n for n in range(40_500))
    assert job.progress is not None and job.progress.done == 41


@contextmanager
def run_ray(*code: str) -> Iterator[str]:
    """Run a cluster of one node with two CPUs, whose processes find these directories; yield its
    port."""
    # Its sockets stand there, and their paths may have 107 bytes.
    place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    port = str(unused_port())
    command = ["start", "--head", "--block", f"--port={port}", f"--temp-dir={place}"]
    command += ["--num-cpus=2", "--object-store-memory=80000000", "--include-dashboard=false"]
    path = ":".join([str(ROOT / "src"), *code])
    with (
        (place / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *command, "--disable-usage-stats"],
            env={**os.environ, **LOOPBACK, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as head,
    ):
        try:
            eventually(lambda: "Ray runtime started" in (place / "log").read_text(), 120)
            yield port
        finally:
            head.terminate()
            try:
                head.wait(60)
            finally:
                head.kill()
            shutil.rmtree(place, ignore_errors=True)


@follows("receive-webhooks.md", is_nightly=True)
def receive(reader: Reader) -> None:
    reader.set("WEBHOOK_SECRET", SECRET)
    body = b'{"type":"order.paid","data":{"order":17}}'
    reader.follow_rest()
    url = f"http://127.0.0.1:{reader.environment['UVICORN_PORT']}/hooks"
    flask = reader.names["flask_app"].test_client()

    def post(id_: str) -> Iterator[tuple[bytes, int]]:
        """Each body that is sent to each receiver, with the status of the response."""
        headers = webhook.sign([SECRET], id_, body, int(time.time()))
        for sent in (body, body, body + b" "):
            yield sent, httpx.post(url, content=sent, headers=headers).status_code
            yield sent, flask.post("/hooks", data=sent, headers=headers).status_code
            given: Any = {"content_type": "application/json", "headers": headers}
            request = RequestFactory().post("/hooks", sent, **given)
            yield sent, reader.names["django_hook"](request).status_code

    with django_database(reader.url):
        for id_ in ("1", "2"):
            assert {(sent == body, code) for sent, code in post(id_)} == {(True, 200), (False, 400)}
    done = ["order 17 is paid"] * 2
    eventually(lambda: [job.result for job in reader.app.find(since="1h")] == done)


@follows("reports.md", is_nightly=True)
def make_a_report(reader: Reader) -> None:
    reader.ask(
        "create table news (text text); create table orders as "
        "select g as id, g * 2 as total from generate_series(1, 12000) g"
    )
    reader.follow_to("## Progress and file")
    reader.stop()
    run = reader.names["export_now"](reader.connection, "anna")
    reader.follow_to("| status | |")
    assert reader.names["show"](run) == "queued"
    reader.app.drain()
    assert reader.names["show"](run).startswith("12000 rows, ")
    assert reader.ask("select text from news") == [("report 1 is ready",)]
    reader.follow_rest()
    assert reader.names["link_of"](run).startswith("/reports/1/file?expires=")
    assert isinstance(reader.names["in_a_bucket"]().store, report.ObjectStore)


@follows("tenant-and-session.md")
def work_for_tenants(reader: Reader) -> None:
    reader.follow_rest()
    place = reader.names["place_order"]
    jobs = [place("acme", "mug"), place("globex", "tea")]
    with pytest.raises(LookupError):
        reader.app.enqueue("confirm", {"order": 1}, reader.connection)
    assert reader.app.drain(concurrency=1).succeeded == 2
    assert [reader.app.get(job).result for job in jobs] == ["acme: mug", "globex: tea"]
    reader.names["find_engine"](reader.app.url).dispose()


@follows("shards.md", is_nightly=True)
def divide_jobs(reader: Reader) -> None:
    if sys.platform != "linux":
        pytest.skip("NOT TRIED: the page of shards; --database is for Linux")
    with ExitStack() as stack:
        shards = {
            f"shard{n}": stack.enter_context(make_database(reader, TEMPLATE)) for n in range(1, 5)
        }
        for database in shards.values():
            with psycopg.connect(reader.server.url(database)) as shard:
                shard.execute(list_files(reader.left)["tables.sql"].encode())
        place = f"host=127.0.0.1\nport={reader.server.port}\nuser=postgres\ndbname="
        services = "".join(f"[{name}]\n{place}{database}\n" for name, database in shards.items())
        reader.languages["text"] = lambda _: reader.write("pg_service.conf", services)
        reader.set("PGSERVICEFILE", str(reader.place / "pg_service.conf"))
        reader.follow_to("## Run it")
        names = reader.names
        for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
            reader.set(name, None)
        sent = {account: names["send"](account, str(account)) for account in range(40)}
        assert names["send"](7, "7") == sent[7], "the key is taken"
        of_shard = Counter(shard for shard, _ in sent.values())
        assert of_shard.keys() == shards.keys()
        reader.follow_to("## Read all shards")
        for name, database in shards.items():
            wait_for_jobs(reader.server.url(database), 2 * of_shard[name])
        reader.follow_rest()
        assert reader.printed.count('"queued":0') >= len(shards)
        names["OPEN"].remove("shard4")  # it is taken out: only its own accounts move
        for account, (was, _) in sent.items():
            now = names["find_shard"](str(account))
            assert (now != was) is (was == "shard4") and now != "shard4"


def wait_for_jobs(url: str, count: int) -> None:
    """Wait until so many jobs have ended; each has succeeded at its first attempt."""
    query = "select status, attempts, count(*) from rota.job_history group by 1, 2"
    with psycopg.connect(url, autocommit=True) as shard:
        eventually(lambda: shard.execute(query).fetchall() == [("succeeded", 1, count)], 120)


@follows("testing.md", is_nightly=True)
def run_tests(reader: Reader) -> None:
    reader.languages["toml"] = lambda text: reader.write("pyproject.toml", text)
    reader.follow_rest()
    tests = "".join(file.read_text() for file in reader.place.glob("test_*.py"))
    assert f"{tests.count('def test_')} passed" in reader.type("pytest")


@follows("testing-in-a-transaction.md", is_nightly=True)
def run_tests_in_a_transaction(reader: Reader) -> None:
    write_files(reader, "testing.md", "shop.py", "conftest.py")
    run_tests(reader)


@follows("webhooks.md", is_nightly=True)
def verify(reader: Reader) -> None:
    reader.names["webhook"] = webhook
    reader.follow_to("## Emit an event")
    eventually(lambda: reader.read_logs().count("verified: ") == 2)
    assert "verified: order.paid {'order': 17}" in reader.read_logs()


@follows("webhook-endpoints.md")
def list_deliveries(reader: Reader) -> None:
    reader.set("ROTA_APP", "shop_hooks:app")
    write_files(reader, "webhooks.md", "shop_hooks.py")
    reader.type("rota migrate")
    reader.ask("create table payment (order_id int)")
    with receiving() as receiver:
        reader.names["hooks"].put("crm", receiver.url("/crm"), allow_private=True)
        with reader.connection.transaction():
            reader.names["pay"](reader.connection, 17)
        assert reader.app.drain().succeeded == 1
        assert receiver.requests[0].headers["webhook-id"] == "order:17:paid"
        reader.follow_to("```sh")
        assert "erp on https://erp.example/in None" in reader.printed
        reader.follow_rest()
    assert reader.names["hooks"].endpoints()[0].why == "they asked"
