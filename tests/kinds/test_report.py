"""Reports: files of many rows, made in pages, once for who asks twice."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

import rota
from rota.kinds import report
from tests.kinds.conftest import Connection, drain
from tests.support.rules import rule
from tests.support.wait import count_lock_waits, eventually
from tests.worker.table import expire_leases

Make = Callable[..., tuple[rota.App, report.Reports]]


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

    def declare(self, reports: report.Reports, name: str = "numbers", **options: Any) -> None:
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
                    row = {"none": None, "text": f'=a "{number}", ü', "number": number}
                    yield (number, row["text"], None) if number % 2 else row

            @staticmethod
            def finish(run: report.ReportRun, connection: Any) -> None:
                outer.finished.append(run)
                connection.execute("insert into told values (%s)", [run.id])

        reports.report(name, **given)(Definition)


builtin_range = range


@pytest.fixture
def numbers(connection: Connection) -> Numbers:
    connection.execute("create table told (run bigint)")
    return Numbers()


def declare(
    reports: report.Reports, rows: list[Any], name: str = "one", **options: Any
) -> type[Any]:
    """Declare a report of one page with these rows; without any, of no page."""

    class Source:
        @staticmethod
        def ranges(params: dict[str, Any]) -> list[int]:
            return [0] if rows else []

        @staticmethod
        def rows(params: dict[str, Any], range: int) -> list[Any]:
            return rows

    reports.report(name, **{"columns": ["a"], **options})(Source)
    return Source


def files_in(folder: Path) -> list[str]:
    """The names of the files that are there."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@rule("M72")
def test_a_report_is_made_in_pages_and_joined_in_their_order(
    make: Make, numbers: Numbers, connection: Connection, tmp_path: Path
) -> None:
    app, reports = make()
    numbers.declare(reports, bom=True, formulas="escape")
    run = reports.request("numbers", {"rows": 25}, by="anna")
    assert (run.status, run.progress, run.asked_by) == ("queued", "queued", "anna")
    with pytest.raises(report.FileGone, match="has no file: it is queued"):
        run.open()
    empty = reports.request("numbers", {"rows": 0})
    app.drain()
    run, empty = run.refresh(), empty.refresh()
    assert (run.status, run.pages_done, run.pages, run.rows) == ("ready", 3, 3, 25)
    with run.open() as file:
        raw = file.read()
    assert (len(raw), hashlib.sha256(raw).hexdigest()) == (run.size, run.checksum)
    assert raw.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(raw.decode("utf-8-sig").splitlines()))
    assert rows[0] == ["number", "text", "none"]
    assert [int(row[0]) for row in rows[1:]] == list(range(25))
    assert rows[2] == ["1", '\'=a "1", ü', ""]
    assert sorted(numbers.made) == list(range(3))
    told = connection.execute("select run from told order by 1").fetchall()
    assert told == [(run.id,), (empty.id,)]
    assert [event.status for event in numbers.finished] == ["ready", "ready"]
    assert files_in(tmp_path / "files/1") == ["numbers.csv"]
    with empty.open() as file:
        assert file.read() == b"\xef\xbb\xbfnumber,text,none\r\n"
    assert run.file is not None
    reports.store.delete(run.file)
    with pytest.raises(report.FileGone, match="is gone from its store"):
        run.open()


STATES: list[tuple[str, str, bool]] = [
    # What is so of the run, how long it may be reused, whether who asks then gets the same one.
    ("select", "1 min", True),
    ("update rota.report_run set pages = 2", "1 min", True),
    ("update rota.report_run set {ready} - interval '50 s'", "1 min", True),
    ("update rota.report_run set {ready} - interval '65 s'", "1 min", False),
    ("update rota.report_run set {ready}", "0 s", False),
    ("update rota.report_run set {ready}, expires_at = now()", "1 d", False),
    ("update rota.report_run set cancelled_at = now(), digest = null", "1 min", False),
    ("update rota.job set status = 'dead'", "1 min", False),
]


@rule("M72", "M51")
def test_a_double_click_is_one_run_until_it_has_expired(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    _, reports = make()
    numbers.declare(reports)
    first = reports.request("numbers", {"rows": 5})
    assert reports.request("numbers", {"rows": 5}).id == first.id
    assert reports.request("numbers", {"rows": 6}).id != first.id
    ask = "select run from rota.report_request('states', '{}', p_reuse => %s)"
    for change, reuse, is_same in STATES:
        with connection.transaction(force_rollback=True):
            asked = connection.execute(ask, [reuse]).fetchone()
            connection.execute(change.format(ready="finished_at = now()").encode())
            found = connection.execute(ask, [reuse]).fetchone()
            assert (found == asked) is is_same, (change, reuse)
            assert connection.execute(ask, [reuse]).fetchone() == found


def finish(connection: Connection, ago: str) -> None:
    """Let all runs have become ready."""
    connection.execute("update rota.report_run set finished_at = now() - %s::interval", [ago])


@rule("M72", "M51")
def test_two_who_ask_at_once_after_that_get_one_new_run(
    make: Make, numbers: Numbers, connection: Connection, database: str
) -> None:
    _, reports = make()
    numbers.declare(reports)
    old = reports.request("numbers", {"rows": 5})
    finish(connection, "1 h")
    with psycopg.connect(database) as mine, ThreadPoolExecutor() as pool:
        first = reports.request("numbers", {"rows": 5}, connection=mine)
        others = [pool.submit(reports.request, "numbers", {"rows": 5}) for _ in range(3)]
        eventually(lambda: count_lock_waits(connection) == 3)
        mine.commit()
        assert {future.result().id for future in others} == {first.id} != {old.id}


@rule("M72")
def test_a_report_may_never_reuse_a_file_not_even_one_that_was_ready_meanwhile(
    make: Make, numbers: Numbers, connection: Connection, database: str
) -> None:
    _, reports = make()
    numbers.declare(reports, reuse="0s")
    reports.request("numbers", {"rows": 5})
    finish(connection, "0 s")
    with psycopg.connect(database) as other, ThreadPoolExecutor() as pool:
        other.execute("update rota.report_run set pages = pages")
        asked = pool.submit(reports.request, "numbers", {"rows": 5})
        eventually(lambda: count_lock_waits(connection) == 1)
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
    assert (reports.list(), app.find()) == ([], [])


@pytest.mark.nightly
@rule("M72", "M44")
def test_a_page_that_is_dead_fails_the_run_and_its_retry_finishes_it(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    app, reports = make(options={"max_attempts": 1, "queue": "reports"})
    numbers.declare(reports)
    numbers.failing = {1}
    run = reports.request("numbers", {"rows": 20})
    app.drain()
    run = run.refresh()
    assert (run.status, run.pages_done, run.pages) == ("failed", 1, 2)
    assert "no page 1" in str(run.error)
    assert run.progress.startswith("failed: ")
    assert run.dead_job is not None
    numbers.failing = set()
    app.retry(run.dead_job)
    app.drain()
    run = run.refresh()
    assert (run.status, run.rows) == ("ready", 20)
    assert sorted(numbers.made) == [0, 1, 1]
    assert app.find(queue="default") == []


@rule("M72")
def test_a_page_that_is_made_again_counts_once(
    make: Make, numbers: Numbers, connection: Connection
) -> None:
    _, reports = make()
    numbers.declare(reports)
    run = reports.request("numbers", {"rows": 20})
    connection.execute("select rota.report_begin(1, null, 2)")
    for name, page, rows in (("first.part", 0, 10), ("again.part", 0, 9), ("other.part", 1, 8)):
        connection.execute("select rota.report_note(1, %s, %s)", [name, page])
        done = connection.execute("select rota.report_page_done(1, %s, %s)", [name, rows])
        assert done.fetchone() == (True,)
    assert (run.refresh().pages_done, run.refresh().status) == (2, "running")
    connection.execute("select rota.report_finish(1, 'x.csv', 1, '', '1 d')")
    assert (run.refresh().rows, run.refresh().status) == (17, "ready")


@rule("M72")
def test_a_run_that_is_cancelled_stops_its_pages_and_leaves_no_files(
    make: Make, numbers: Numbers, connection: Connection, tmp_path: Path
) -> None:
    app, reports = make()
    numbers.declare(reports)
    run = reports.request("numbers", {"rows": 100})
    numbers.meanwhile = lambda: reports.cancel(run.id) if len(numbers.made) == 2 else None
    app.drain(concurrency=1)
    assert run.refresh().status == "cancelled"
    assert 2 <= len(numbers.made) < 10
    assert files_in(tmp_path / "files") == []
    with pytest.raises(report.FileGone, match="it is cancelled"):
        run.refresh().open()


@pytest.mark.nightly
@rule("M72")
def test_a_cancel_counts_while_pages_are_found_put_and_joined(
    make: Make, numbers: Numbers, connection: Connection, tmp_path: Path
) -> None:
    app, reports = make()
    numbers.declare(reports)
    source = reports._reports["numbers"].made_of
    ranges, put = source.ranges, reports.store.put

    def find(params: dict[str, Any]) -> Any:
        reports.cancel(1)
        return ranges(params)

    source.ranges = staticmethod(find)
    first = reports.request("numbers", {"rows": 20})
    app.drain()
    assert (first.refresh().status, numbers.made) == ("cancelled", [])

    def put_page(name: str, file: Any) -> None:
        if len(numbers.made) == 2:
            reports.cancel(2)
            connection.execute("delete from rota.job where job_type = 'report.tidy'")
        put(name, file)

    source.ranges, reports.store.put = staticmethod(ranges), put_page  # type: ignore[method-assign]
    second = reports.request("numbers", {"rows": 20})
    app.drain(concurrency=1)
    assert second.refresh().status == "cancelled"
    assert len(files_in(tmp_path / "files")) == 1, "the page before it"

    def put_late(name: str, file: Any) -> None:
        put(name, file)
        if name.endswith(".csv"):
            reports.cancel(3)

    reports.store.put = put_late  # type: ignore[method-assign]
    third = reports.request("numbers", {"rows": 20})
    app.drain()
    assert third.refresh().status == "cancelled"
    with pytest.raises(report.FileGone):
        third.refresh().open()


@pytest.mark.nightly
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
            until = time.monotonic() + 60
            while time.monotonic() < until:
                yield (1,)
            read.append("to its end")

    run = reports.request("long")
    app.drain()
    assert run.refresh().status == "cancelled"
    assert read == []


@pytest.mark.nightly
@rule("M72")
def test_a_join_that_dies_again_and_again_is_shown_and_can_be_cancelled(make: Make) -> None:
    app, reports = make()

    def finish(run: report.ReportRun, connection: Any) -> None:
        raise rota.Dead("the mail server refuses")

    declare(reports, [], "no page").finish = staticmethod(finish)
    declare(reports, [(1,)], "one page").finish = staticmethod(finish)
    runs = [reports.request("no page"), reports.request("one page")]
    for _ in range(2):
        app.drain()
        for run in (stale.refresh() for stale in runs):
            assert (run.status, run.error) == ("failed", "the mail server refuses")
            assert run.dead_job is not None
            app.retry(run.dead_job)
    for run in runs:
        reports.cancel(run.id)
    app.drain()
    for run in runs:
        assert run.refresh().status == "cancelled"
        assert reports.request(run.name).id != run.id


@pytest.mark.nightly
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


@pytest.mark.nightly
@rule("M72", "M32")
@pytest.mark.parametrize("ending", [".part", ".csv"])
def test_a_worker_that_was_frozen_does_not_change_the_file_of_another_and_leaves_none(
    make: Make, connection: Connection, tmp_path: Path, ending: str
) -> None:
    app, reports = make()
    other, beside = make()
    for package in (reports, beside):
        declare(package, [(1,)])
    run = reports.request("one")
    put = reports.store.put

    def check() -> None:
        with run.refresh().open() as file:
            assert hashlib.sha256(file.read()).hexdigest() == run.refresh().checksum

    def put_late(name: str, file: Any) -> None:
        """Stand still until the lease is over and another worker is through; write what is
        something else by then."""
        if name.endswith(ending):
            expire_leases(connection)
            with ThreadPoolExecutor(1) as pool:
                for _ in range(2):  # the lost job is due again a moment later
                    pool.submit(drain, other, connection).result()
            check()
            file = io.BytesIO(b"late")
        put(name, file)

    reports.store.put = put_late  # type: ignore[method-assign]
    app.drain(concurrency=1)
    check()
    assert files_in(tmp_path / "files") == ["one.csv"]


@rule("M72", "M30")
def test_what_workers_have_left_that_died_while_or_after_they_put_it_is_tidied_up(
    make: Make, connection: Connection, tmp_path: Path
) -> None:
    app, reports = make()
    declare(reports, [(1,)])
    run = reports.request("one")
    put, left = reports.store.put, list[Any]()

    def put_and_die(name: str, file: Any) -> None:
        if name.endswith(".part") and not left:
            (tmp_path / "files/1").mkdir(parents=True)
            block = rota.write_file(tmp_path / "files" / name)
            left.append((block, block.__enter__()))
            raise ConnectionError("as the process ends here")
        put(name, file)
        if name.endswith(".part") and len(left) == 1:
            left.append(name)
            raise ConnectionError("as the process ends here")

    reports.store.put = put_and_die  # type: ignore[method-assign]
    for _ in range(2):
        drain(app, connection)
    part, page = files_in(tmp_path / "files")
    assert part.startswith(".2-1.part.") and page == Path(left[1]).name
    drain(app, connection)
    assert run.refresh().status == "ready"
    assert files_in(tmp_path / "files") == ["one.csv"]
    left[0][1].close()


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


@pytest.mark.nightly
def test_what_has_expired_is_deleted_and_a_file_that_cannot_be_keeps_no_other(
    make: Make, connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app, reports = make()
    declare(reports, [(1,)])
    for n in range(3):
        reports.request("one", {"n": n})
    app.drain()
    connection.execute("update rota.report_run set expires_at = now() where id < 3")
    gone = reports.get(2)
    with pytest.raises(report.FileGone, match="it is expired"):
        gone.open()
    delete = reports.store.delete

    def refuse(name: str) -> None:
        if name.startswith("1/"):
            raise PermissionError(name)
        delete(name)

    monkeypatch.setattr(reports.store, "delete", refuse)
    app.enqueue("report.clean", {})
    app.drain()
    assert [run.id for run in reports.list()] == [3, 1]
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == ["1", "3"]
    with pytest.raises(report.FileGone, match="no report run 2"):
        gone.refresh()


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


@pytest.mark.nightly
@rule("M72")
def test_a_report_is_kept_in_an_object_store(database: str, numbers: Numbers, bucket: Any) -> None:
    reports = report.Reports(report.ObjectStore(bucket))
    app = rota.App(database, jobs=[reports.jobs])
    app.migrate()
    numbers.declare(reports, format="xlsx")  # whose pages are read from any place
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
    assert [entry["path"] for page in bucket.list() for entry in page] == [run.file]
    reports.store.delete(run.file)
    reports.store.delete(run.file)
    with pytest.raises(report.FileGone, match="gone from its store"):
        run.open()
    app.close()


def test_what_is_no_report_is_refused(make: Make, numbers: Numbers) -> None:
    _, reports = make()
    numbers.declare(reports)
    with pytest.raises(rota.UsageError, match="there is no report 'nubmers'; there are numbers"):
        reports.request("nubmers")
    for wrong in (None, "1", 1.0):  # of which None would be the latest run of all
        with pytest.raises(rota.UsageError, match="a whole number, not"):
            reports.cancel(wrong)  # type: ignore[arg-type]
    for odd in (float("nan"), object(), "\0"):
        with pytest.raises(rota.PayloadError):
            reports.request("numbers", {"rows": odd})

    class Late(report.ReportSource):
        @staticmethod
        async def finish(run: report.ReportRun, connection: Any) -> None: ...

    source = report.ReportSource
    cases: tuple[tuple[Any, Any, Any, str], ...] = (
        ("", source, {}, "1 to 100 characters"),
        ("x", source, {"format": "pdf"}, "no format 'pdf'; there are csv"),
        ("x", source, {"format": "xlsx", "bom": True}, "for CSV alone"),
        ("x", source, {"format": "jsonl", "formulas": "escape"}, "for CSV alone"),
        ("x", source, {"formulas": "drop"}, "keep or escape, not 'drop'"),
        ("numbers", source, {}, "declared twice"),
        ("x", object, {}, "no method ranges"),
        ("x", Late, {}, "finish runs in a thread"),
        ("x", source, {"keep": "forever"}, "forever"),
        ("x", source, {"keep": "-1d"}, "-1d"),
        ("x", source, {"reuse": "often"}, "often"),
        ("x", source, {"columns": "ab"}, "a list of names"),
        ("x", source, {"columns": ["a", "a"]}, "each once"),
        ("x", source, {"columns": []}, "a list of names"),
    )
    for name, made_of, options, said in cases:
        given: dict[str, Any] = {"columns": ["a"], **options}
        with pytest.raises(rota.RotaError, match=said):
            reports.report(name, **given)(made_of)


@rule("M72")
async def test_async_code_lists_and_cancels_runs(make: Make, numbers: Numbers) -> None:
    app, reports = await asyncio.to_thread(make)
    numbers.declare(reports)
    run = await reports.arequest("numbers", {"rows": 20})
    await app.acancel(1)
    await reports.acancel(run.id)  # although its job is over
    assert [found.status for found in await reports.alist()] == ["cancelled"]
    with pytest.raises(report.FileGone):
        await reports.aget(run.id + 1)
    await app.aclose()
