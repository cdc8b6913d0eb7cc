"""Reports: files of many rows, made in pages, once for who asks twice."""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store
from psycopg.rows import TupleRow

import rota
from rota.kinds import report
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.wait import eventually

Make = Callable[..., tuple[rota.App, report.Reports]]
Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def make(database: str, tmp_path: Path) -> Iterator[Make]:
    """Makes an App with reports in a folder, migrated and declared."""
    apps: list[rota.App] = []

    def make(**options: Any) -> tuple[rota.App, report.Reports]:
        reports = report.Reports(tmp_path / "files", **options)
        apps.append(rota.App(database, jobs=[reports.jobs], release="1"))
        apps[-1].migrate()
        apps[-1].sync()
        return apps[-1], reports

    yield make
    for app in apps:
        app.close()


class Numbers:
    """Pages of ten numbers; it counts how often each is made, and some fail."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.failing: set[int] = set()
        self.finished: list[report.ReportRun] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def declare(self, reports: report.Reports, **options: Any) -> None:
        outer = self
        given = {"columns": ["number", "text", "none"], **options}

        class Definition:
            @staticmethod
            def ranges(params: dict[str, Any]) -> Iterator[list[int]]:
                for first in range(0, params["rows"], 10):
                    yield [first, min(first + 10, params["rows"])]

            @staticmethod
            def rows(params: dict[str, Any], range: list[int]) -> Iterator[Any]:
                outer.made.append(range[0] // 10)
                outer.meanwhile()
                if range[0] // 10 in outer.failing:
                    raise LookupError(f"no page {range[0] // 10}")
                for number in builtin_range(*range):
                    yield (number, f'a "{number}", ü', None) if number % 2 else {"number": number}

            @staticmethod
            def finish(run: report.ReportRun, connection: Any) -> None:
                outer.finished.append(run)
                connection.execute("insert into told values (%s)", [run.id])

        reports.report("numbers", **given)(Definition)


builtin_range = range


@pytest.fixture
def numbers(connection: Connection) -> Numbers:
    connection.execute("create table told (run bigint)")
    return Numbers()


def files_in(folder: Path) -> list[str]:
    """The names of the files that are there."""
    return sorted(one.name for one in folder.rglob("*") if one.is_file())


def drain(app: rota.App, connection: Connection) -> None:
    """Run what is due, and what was delayed."""
    connection.execute("update rota.job set run_at = now() where status in ('queued', 'failed')")
    app.drain()


@rule("M72")
def test_a_report_is_made_in_pages_and_joined_in_their_order(
    make: Make, numbers: Numbers, connection: Connection, tmp_path: Path
) -> None:
    app, reports = make()
    numbers.declare(reports)
    run = reports.request("numbers", {"rows": 95}, by="anna")
    assert (run.status, run.progress, run.asked_by) == ("queued", "queued", "anna")
    with pytest.raises(report.FileGone, match="has no file: it is queued"):
        run.open()
    app.drain()
    run = run.refresh()
    assert (run.status, run.pages_done, run.pages, run.rows) == ("ready", 10, 10, 95)
    with run.open() as file:
        raw = file.read()
    assert (len(raw), hashlib.sha256(raw).hexdigest()) == (run.size, run.checksum)
    rows = list(csv.reader(raw.decode().splitlines()))
    assert rows[0] == ["number", "text", "none"]
    assert [int(one[0]) for one in rows[1:]] == list(range(95))
    assert rows[2] == ["1", 'a "1", ü', ""]
    assert sorted(numbers.made) == list(range(10))
    assert connection.execute("select run from told").fetchall() == [(run.id,)]
    assert [one.status for one in numbers.finished] == ["ready"]
    assert files_in(tmp_path / "files/1") == ["numbers.csv"]


@rule("M72", "M51")
def test_a_double_click_is_one_run_until_it_has_expired(
    make: Make, numbers: Numbers, connection: Connection, tmp_path: Path
) -> None:
    app, reports = make()
    numbers.declare(reports, keep="1d")
    first = reports.request("numbers", {"rows": 5})
    assert reports.request("numbers", {"rows": 5}).id == first.id
    assert reports.request("numbers", {"rows": 6}).id != first.id
    app.drain()
    assert reports.request("numbers", {"rows": 5}).id == first.id
    connection.execute("update rota.report_run set expires_at = now() where id = 1")
    assert first.refresh().status == "expired"
    with pytest.raises(report.FileGone, match="it is expired"):
        first.refresh().open()
    again = reports.request("numbers", {"rows": 5})
    assert again.id not in (1, 2)
    app.enqueue("report.clean", {})
    app.drain()
    with pytest.raises(report.FileGone, match="no report run 1"):
        first.refresh()
    assert not (tmp_path / "files/1").exists()
    assert again.refresh().status == "ready"


def age(connection: Connection, by: str) -> None:
    """Let runs that are ready have been so for longer."""
    connection.execute("update rota.report_run set finished_at = finished_at - %s::interval", [by])


@rule("M72", "M51")
def test_who_asks_a_minute_after_a_file_is_ready_gets_a_new_one_and_the_old_one_stays(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    app, reports = make()
    numbers.declare(reports)
    first = reports.request("numbers", {"rows": 5})
    age(connection, "1 h")
    assert reports.request("numbers", {"rows": 5}).id == first.id, "a run that is queued"
    app.drain()
    age(connection, "50 s")
    assert reports.request("numbers", {"rows": 5}).id == first.id
    age(connection, "15 s")
    other = reports.request("numbers", {"rows": 5})
    assert (other.id, other.status) == (2, "queued")
    app.drain()
    assert reports.request("numbers", {"rows": 5}).id == other.id
    with first.refresh().open() as old, other.refresh().open() as new:
        assert old.read() == new.read()


@rule("M72", "M51")
def test_two_who_ask_at_once_after_that_get_one_new_run(
    make: Make, numbers: Numbers, connection: Connection, database: str
) -> None:
    app, reports = make()
    numbers.declare(reports)
    reports.request("numbers", {"rows": 5})
    app.drain()
    age(connection, "1 h")
    with psycopg.connect(database) as mine, ThreadPoolExecutor() as pool:
        first = reports.request("numbers", {"rows": 5}, connection=mine)
        others = [pool.submit(reports.request, "numbers", {"rows": 5}) for _ in range(3)]
        eventually(lambda: waiting(connection) == 3)
        mine.commit()
        assert {one.result().id for one in others} == {first.id}


def waiting(connection: Connection) -> int:
    """How many sessions wait for a lock."""
    [[found]] = connection.execute(
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock'"
    ).fetchall()
    return int(found)


@rule("M72")
def test_a_report_may_never_reuse_a_file_not_even_one_that_was_ready_meanwhile(
    make: Make, numbers: Numbers, connection: Connection, database: str
) -> None:
    app, reports = make()
    numbers.declare(reports, reuse="0s")
    reports.request("numbers", {"rows": 5})
    app.drain()
    with psycopg.connect(database) as other, ThreadPoolExecutor() as pool:
        other.execute("update rota.report_run set pages = pages")
        asked = pool.submit(reports.request, "numbers", {"rows": 5})
        eventually(lambda: waiting(connection) == 1)
        other.execute("update rota.report_run set finished_at = clock_timestamp()")
        other.commit()
        assert asked.result().id == 2
    assert reports.request("numbers", {"rows": 5}).id == 2, "it is queued"


@rule("M20")
def test_a_report_that_is_rolled_back_is_not_made(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    app, reports = make()
    numbers.declare(reports)
    with connection.transaction(force_rollback=True):
        reports.request("numbers", {"rows": 5}, connection=connection)
    app.drain()
    assert reports.list() == []


@rule("M72", "M44")
def test_a_page_that_is_dead_fails_the_run_and_its_retry_finishes_it(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    app, reports = make(options={"max_attempts": 1})
    numbers.declare(reports)
    numbers.failing = {2}
    run = reports.request("numbers", {"rows": 40})
    app.drain()
    run = run.refresh()
    assert (run.status, run.pages_done, run.pages) == ("failed", 3, 4)
    assert "no page 2" in str(run.error)
    assert run.progress.startswith("failed: ")
    assert run.dead_job is not None
    numbers.failing = set()
    app.retry(run.dead_job)
    app.drain()
    run = run.refresh()
    assert (run.status, run.rows) == ("ready", 40)
    assert sorted(numbers.made) == [0, 1, 2, 2, 3]


@rule("M72")
def test_a_page_that_is_made_again_counts_once(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    app, reports = make(options={"max_attempts": 1})
    numbers.declare(reports)
    numbers.failing = {1}
    run = reports.request("numbers", {"rows": 20})
    app.drain()
    [[page]] = connection.execute(
        "select id from rota.job_history where job_type = 'report.page'"
    ).fetchall()
    app.retry(page, again=True)
    app.drain()
    assert numbers.made == [0, 1, 0]
    assert run.refresh().pages_done == 1
    numbers.failing = set()
    dead = run.refresh().dead_job
    assert dead is not None
    app.retry(dead)
    app.drain()
    assert (run.refresh().status, run.refresh().rows) == ("ready", 20)


@rule("M72")
def test_a_run_that_failed_or_was_cancelled_is_asked_for_anew(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    app, reports = make(options={"max_attempts": 1})
    numbers.declare(reports)
    numbers.failing = {0}
    run = reports.request("numbers", {"rows": 10})
    app.drain()
    assert run.refresh().status == "failed"
    numbers.failing = set()
    other = reports.request("numbers", {"rows": 10})
    assert other.id != run.id
    reports.cancel(other.id, why="not needed")
    assert other.refresh().status == "cancelled"
    third = reports.request("numbers", {"rows": 10})
    app.drain()
    assert third.refresh().status == "ready"


@rule("M72")
def test_a_cancel_stops_the_pages(make: Make, numbers: Numbers, connection: Connection) -> None:
    app, reports = make()
    numbers.declare(reports)
    run = reports.request("numbers", {"rows": 100})
    numbers.meanwhile = lambda: reports.cancel(run.id)
    app.drain(concurrency=1)
    assert run.refresh().status == "cancelled"
    assert len(numbers.made) < 10
    with pytest.raises(report.FileGone, match="it is cancelled"):
        run.refresh().open()


@rule("M72")
@pytest.mark.parametrize("late", [False, True], ids=["between pages", "while one is put"])
def test_a_run_that_is_cancelled_leaves_no_files(
    make: Make, numbers: Numbers, connection: Connection, tmp_path: Path, late: bool
) -> None:
    app, reports = make()
    numbers.declare(reports)
    run = reports.request("numbers", {"rows": 20})
    put = reports.store.put

    def put_page(name: str, file: Any) -> None:
        if late and len(numbers.made) == 2:
            reports.cancel(run.id)
            connection.execute("delete from rota.job where job_type = 'report.tidy'")
        put(name, file)

    reports.store.put = put_page  # type: ignore[method-assign]
    numbers.meanwhile = lambda: None if late or len(numbers.made) < 2 else reports.cancel(run.id)
    app.drain(concurrency=1)
    assert run.refresh().status == "cancelled"
    assert len(files_in(tmp_path / "files")) == (1 if late else 0), "the page before it"


@pytest.mark.parametrize("format", ["jsonl", "xlsx", "parquet"])
def test_each_format_has_all_rows_in_order(make: Make, numbers: Numbers, format: str) -> None:
    app, reports = make()
    numbers.declare(reports, format=format)
    run = reports.request("numbers", {"rows": 25})
    app.drain()
    run = run.refresh()
    assert run.status == "ready", run.error
    with run.open() as file:
        if format == "jsonl":
            found = [json.loads(line)["number"] for line in file]
        elif format == "xlsx":
            openpyxl: Any = importlib.import_module("openpyxl")
            sheet = openpyxl.load_workbook(file).active
            found = [row[0] for row in list(sheet.values)[1:]]
        else:
            parquet: Any = importlib.import_module("pyarrow.parquet")
            found = parquet.read_table(file).column("number").to_pylist()
    assert found == list(range(25))


def test_a_report_without_rows_is_a_file_with_names(make: Make, numbers: Numbers) -> None:
    app, reports = make()
    numbers.declare(reports)
    run = reports.request("numbers", {"rows": 0})
    app.drain()
    with run.refresh().open() as file:
        assert file.read() == b"number,text,none\r\n"


def test_a_file_that_is_gone_is_said_so(make: Make, numbers: Numbers) -> None:
    app, reports = make()
    numbers.declare(reports)
    run = reports.request("numbers", {"rows": 5})
    app.drain()
    run = run.refresh()
    assert run.file is not None
    reports.store.delete(run.file)
    with pytest.raises(report.FileGone, match="is gone from its store"):
        run.open()


def test_what_is_no_report_is_refused(make: Make, numbers: Numbers) -> None:
    _, reports = make()
    numbers.declare(reports)
    with pytest.raises(rota.UsageError, match="there is no report 'nubmers'; there are numbers"):
        reports.request("nubmers")
    for odd in (float("nan"), object(), "\0"):
        with pytest.raises(rota.PayloadError):
            reports.request("numbers", {"rows": odd})
    with pytest.raises(rota.errors.DeclarationError, match="1 to 100 characters"):
        reports.report("", columns=["a"])(report.ReportSource)
    for options, text in (
        ({"format": "pdf"}, "no format 'pdf'; there are csv"),
        ({}, "declared twice"),
    ):
        with pytest.raises(rota.errors.DeclarationError, match=text):
            numbers.declare(reports, **options)
    with pytest.raises(rota.errors.DeclarationError, match="no method ranges"):
        reports.report("x", columns=["a"])(object)


def test_a_row_that_does_not_fit_is_dead(make: Make) -> None:
    app, reports = make()

    @reports.report("wrong", columns=["a", "b"])
    class Wrong:
        @staticmethod
        def ranges(params: dict[str, Any]) -> list[int]:
            return [0]

        @staticmethod
        def rows(params: dict[str, Any], range: int) -> list[tuple[int, ...]]:
            return [(1, 2), (1, 2, 3)]

    run = reports.request("wrong")
    app.drain()
    assert run.refresh().error == "a row has 3 values, and there are 2 columns"


def test_runs_are_listed_and_shown_on_the_command_line(
    make: Make, numbers: Numbers, tmp_path: Path
) -> None:
    app, reports = make()
    numbers.declare(reports)
    reports.request("numbers", {"rows": 5}, by="anna")
    app.drain()
    (tmp_path / "shop.py").write_text(
        "import rota\nfrom rota.kinds import report\n"
        "reports = report.Reports('files')\napp = rota.App(jobs=[reports.jobs])\n"
    )
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=app.url, ROTA_APP="shop:app")
    assert "numbers" in command.ok("reports", "list").out
    assert command.ok("reports", "show", "1", "--json").json["status"] == "ready"


@pytest.fixture
def bucket() -> Iterator[Any]:
    """A bucket in an S3 of this test, over HTTP."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    httpx.put(f"{endpoint}/files").raise_for_status()
    yield S3Store(
        "files",
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="test",
        secret_access_key="test",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    server.stop()


@rule("M72")
@pytest.mark.parametrize("format", ["csv", "xlsx"])
def test_a_report_is_kept_in_an_object_store(
    database: str, numbers: Numbers, bucket: Any, format: str
) -> None:
    reports = report.Reports(report.ObjectStore(bucket))
    app = rota.App(database, jobs=[reports.jobs])
    app.migrate()
    numbers.declare(reports, format=format)
    run = reports.request("numbers", {"rows": 25})
    app.drain()
    run = run.refresh()
    assert (run.status, run.rows) == ("ready", 25), run.error
    with run.open() as file:
        raw = file.read()
    assert hashlib.sha256(raw).hexdigest() == run.checksum
    assert run.file is not None
    signed = reports.store.url(run.file, 60)
    assert signed is not None
    assert httpx.get(signed).content == raw
    assert [one["path"] for page in bucket.list() for one in page] == [run.file]
    reports.store.delete(run.file)
    reports.store.delete(run.file)
    with pytest.raises(report.FileGone, match="gone from its store"):
        run.open()
    app.close()


@rule("M72")
def test_a_page_of_many_rows_is_stopped_by_a_cancel(make: Make) -> None:
    app, reports = make(options={"lease": "1s"})  # each renewal asks whether to stop
    read = []

    @reports.report("long", columns=["n"])
    class Long:
        @staticmethod
        def ranges(params: dict[str, Any]) -> list[int]:
            return [0]

        @staticmethod
        def rows(params: dict[str, Any], range: int) -> Iterator[tuple[int]]:
            reports.cancel(1)
            until = time.monotonic() + 20
            while time.monotonic() < until:
                yield (1,)
            read.append("to its end")

    run = reports.request("long")
    app.drain()
    assert run.refresh().status == "cancelled"
    assert read == []


def test_a_file_is_put_into_a_directory_that_a_deletion_has_just_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, write_file = report.Directory(tmp_path), rota.write_file
    times = iter([True, True, False])

    def write(path: Path) -> Any:
        if next(times):
            store.delete("1/none.part")
        return write_file(path)

    monkeypatch.setattr(rota, "write_file", write)
    store.put("1/one.part", io.BytesIO(b"x"))
    with store.open("1/one.part") as file:
        assert file.read() == b"x"


def test_a_text_of_a_stranger_is_no_formula(make: Make) -> None:
    app, reports = make()

    @reports.report("texts", columns=["text"], format="xlsx")
    class Texts:
        @staticmethod
        def ranges(params: dict[str, Any]) -> list[int]:
            return [0]

        @staticmethod
        def rows(params: dict[str, Any], range: int) -> list[tuple[str]]:
            return [('=HYPERLINK("http://x","y")',), ("http://x.example",)]

    run = reports.request("texts")
    app.drain()
    openpyxl: Any = importlib.import_module("openpyxl")
    with run.refresh().open() as file:
        cells = openpyxl.load_workbook(file).active["A"]
    assert [one.value for one in cells][1:] == ['=HYPERLINK("http://x","y")', "http://x.example"]
    assert {one.data_type for one in cells} == {"s"}
    assert [one.hyperlink for one in cells] == [None] * 3


def declare(reports: report.Reports, rows: list[Any], **options: Any) -> type[Any]:
    """Declare a report of one page with these rows; without any, of no page."""

    class Source:
        @staticmethod
        def ranges(params: dict[str, Any]) -> list[int]:
            return [0] if rows else []

        @staticmethod
        def rows(params: dict[str, Any], range: int) -> list[Any]:
            return rows

    reports.report("one", **{"columns": ["a"], **options})(Source)
    return Source


@rule("M72")
@pytest.mark.parametrize("rows", [[], [(1,)]], ids=["no page", "one page"])
def test_a_join_that_dies_again_and_again_is_shown_and_can_be_cancelled(
    make: Make, rows: list[Any]
) -> None:
    app, reports = make()

    def finish(run: report.ReportRun, connection: Any) -> None:
        raise rota.Dead("the mail server refuses")

    declare(reports, rows).finish = staticmethod(finish)
    run = reports.request("one")
    for _ in range(2):
        app.drain()
        run = run.refresh()
        assert (run.status, run.error) == ("failed", "the mail server refuses")
        assert run.dead_job is not None
        app.retry(run.dead_job)
    reports.cancel(run.id)
    app.drain()
    assert run.refresh().status == "cancelled"
    assert reports.request("one").id != run.id


@rule("M72")
def test_a_cancel_counts_while_pages_are_found_and_while_they_are_joined(
    make: Make, numbers: Numbers
) -> None:
    app, reports = make()
    numbers.declare(reports)
    ranges = reports._reports["numbers"].made_of.ranges

    def find(params: dict[str, Any]) -> Any:
        reports.cancel(1)
        return ranges(params)

    reports._reports["numbers"].made_of.ranges = staticmethod(find)
    first = reports.request("numbers", {"rows": 20})
    app.drain()
    assert (first.refresh().status, numbers.made) == ("cancelled", [])
    reports._reports["numbers"].made_of.ranges = staticmethod(ranges)
    reports._reports["numbers"].made_of.finish = staticmethod(lambda run, connection: None)
    put = reports.store.put

    def put_late(name: str, file: Any) -> None:
        put(name, file)
        if name.endswith(".csv"):
            reports.cancel(2)

    reports.store.put = put_late  # type: ignore[method-assign]
    second = reports.request("numbers", {"rows": 20})
    app.drain()
    assert second.refresh().status == "cancelled"
    with pytest.raises(report.FileGone):
        second.refresh().open()


@rule("M72")
def test_pages_of_two_releases_make_no_file(make: Make, connection: Connection) -> None:
    app, reports = make()
    declare(reports, [(1,)])
    run = reports.request("one")
    connection.execute(
        "create function hold() returns trigger language plpgsql as $$ begin "
        "new.run_at := now() + interval '1 h'; return new; end $$"
    )
    connection.execute(
        "create trigger hold before insert on rota.job for each row "
        "when (new.job_type = 'report.page') execute function hold()"
    )
    app.drain()
    del reports._reports["one"]
    declare(reports, [(1, 2)], columns=["a", "b"])
    drain(app, connection)
    run = run.refresh()
    assert run.status == "failed"
    assert "had other columns" in str(run.error)


def test_a_worker_without_the_report_leaves_it_to_others(make: Make, database: str) -> None:
    app, reports = make()
    declare(reports, [(1,)])
    run = reports.request("one")
    own = report.Reports(reports.store)
    other = rota.App(database, jobs=[own.jobs])
    other.drain()
    other.close()
    assert run.refresh().status == "queued"
    assert app.get(run.job).attempts == 0


def test_parquet_keeps_each_value(make: Make) -> None:
    app, reports = make()
    rows: list[Any] = [
        *((n, n, None, n, True) for n in range(6_000)),
        (1.5, "x", {"y": 2}, 2**70, False),
    ]
    declare(reports, rows, columns=["float", "mixed", "late", "long", "bool"], format="parquet")
    run = reports.request("one")
    app.drain()
    parquet: Any = importlib.import_module("pyarrow.parquet")
    with run.refresh().open() as file:
        last = parquet.read_table(file).to_pylist()[-1]
    assert last == {
        "float": 1.5, "mixed": "x", "late": '{"y":2}', "long": str(2**70), "bool": False,
    }  # fmt: skip


VALUES: list[tuple[Any, str, Any]] = [
    # what it is, in CSV, in a sheet
    (Decimal("1234567890123.50"), "1234567890123.50", 1234567890123.5),
    (Decimal("0.1000000000000000000000"), "0.1000000000000000000000", 0.1),
    (Decimal("12345678901234567890.12"), "12345678901234567890.12", "12345678901234567890.12"),
    (Decimal("1E+400"), "1E+400", "1E+400"),
    (Decimal("NaN"), "NaN", "NaN"),
    (True, "true", True),
    ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}', '{"a":[1,null,"ü"]}'),
    ([False, Decimal("1.5")], '[false,"1.5"]', '[false,"1.5"]'),
    (b"ab\xff", "YWL/", "YWL/"),
    (datetime(2026, 1, 1, 3, tzinfo=UTC), "2026-01-01T03:00:00Z", "2026-01-01T03:00:00Z"),
    (ip_address("192.0.2.1"), "192.0.2.1", "192.0.2.1"),
    (7, "7", 7),
    (0.5, "0.5", 0.5),
    ("true", "true", "true"),
    (None, "", None),
]


@rule("M72")
def test_values_are_numbers_truth_values_or_the_texts_of_json_in_each_format(make: Make) -> None:
    app, reports = make()
    found: dict[str, list[Any]] = {}
    for kind in ("csv", "jsonl", "xlsx"):
        declare(reports, [(value, "x") for value, *_ in VALUES], columns=["a", "b"], format=kind)
        run = reports.request("one", {"format": kind})
        app.drain()
        del reports._reports["one"]
        run = run.refresh()
        assert run.status == "ready", run.error
        with run.open() as file:
            if kind == "csv":
                text = file.read().decode()
                found[kind] = [one[0] for one in csv.reader(text.splitlines())][1:]
            elif kind == "jsonl":
                found[kind] = [json.loads(line)["a"] for line in file]
            else:
                openpyxl: Any = importlib.import_module("openpyxl")
                cells = openpyxl.load_workbook(file).active["A"]
                found[kind] = [one.value for one in cells][1:]
    assert found["csv"] == [one for _, one, _ in VALUES]
    assert found["xlsx"] == [one for *_, one in VALUES]
    assert [type(one) for one in found["xlsx"]] == [type(one) for *_, one in VALUES]
    assert found["jsonl"][0] == "1234567890123.50"
    assert found["jsonl"][6:9] == [{"a": [1, None, "ü"]}, [False, "1.5"], "YWL/"]


def test_a_sheet_changes_no_number_and_cuts_no_text(make: Make) -> None:
    app, reports = make()
    declare(reports, [(12345678901234567,), (7,)], format="xlsx")
    run = reports.request("one")
    app.drain()
    openpyxl: Any = importlib.import_module("openpyxl")
    with run.refresh().open() as file:
        values = [one.value for one in openpyxl.load_workbook(file).active["A"]]
    assert values == ["a", "12345678901234567", 7]
    del reports._reports["one"]
    declare(reports, [("x" * 40_000,)], format="xlsx")
    other = reports.request("one", {"long": True})
    app.drain()
    assert "32,767 characters" in str(other.refresh().error)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"keep": "forever"}, "forever"),
        ({"keep": "-1d"}, "-1d"),
        ({"reuse": "often"}, "often"),
        ({"columns": "ab"}, "a list of names"),
        ({"columns": ["a", "a"]}, "each once"),
        ({"columns": []}, "a list of names"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(
    make: Make, options: dict[str, Any], text: str
) -> None:
    _, reports = make()
    with pytest.raises(rota.RotaError, match=text):
        declare(reports, [], **options)


def test_an_async_method_is_refused(make: Make) -> None:
    _, reports = make()

    class Source(report.ReportSource):
        @staticmethod
        async def finish(run: report.ReportRun, connection: Any) -> None: ...

    with pytest.raises(rota.errors.DeclarationError, match="finish runs in a thread"):
        reports.report("x", columns=["a"])(Source)


def test_a_file_that_cannot_be_deleted_keeps_no_other(
    make: Make, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, reports = make()
    declare(reports, [(1,)])
    for n in range(2):
        reports.request("one", {"n": n})
    app.drain()
    connection.execute("update rota.report_run set expires_at = now()")
    delete = reports.store.delete

    def refuse(name: str) -> None:
        if name.startswith("1/"):
            raise PermissionError(name)
        delete(name)

    monkeypatch.setattr(reports.store, "delete", refuse)
    app.enqueue("report.clean", {})
    app.drain()
    assert [one.id for one in reports.list()] == [1]
