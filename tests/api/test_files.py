"""`rota.write_file`: a file is there whole or not at all."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.errors import UsageError
from tests.api.rows import Rows
from tests.support import forked
from tests.support.rules import rule
from tests.worker.table import expire_leases

Connection = psycopg.Connection[TupleRow]
ROOT = Path(__file__).parents[2]


class Broken(Exception):
    """Ends a block before its end."""


@pytest.fixture
def umask() -> Iterator[None]:
    """A umask that lets the group read, and nobody else."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def put(path: Path, data: str) -> None:
    with rota.write_file(path, mode="w") as file:
        file.write(data)


async def fail(path: Path) -> None:
    with suppress(Broken):
        async with rota.write_file(path) as file:
            file.write(b"new")
            raise Broken


# Without a key


@rule("M53")
def test_a_file_is_on_disk_before_it_has_its_name_and_then_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "report.csv", []

    def sync(descriptor: int) -> None:
        file = Path(f"/proc/self/fd/{descriptor}").readlink()
        text = file.read_text() if file.is_file() else None
        synced.append((file.parent, file.suffix, text, path.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    put(path, "new")
    assert synced == [(tmp_path, ".part", "new", False), (tmp_path.parent, "", None, True)]


@rule("M53")
def test_a_file_appears_whole_at_the_end_of_its_block(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for old in (None, "old"):
        with rota.write_file(str(path)) as file:
            assert (file.path, file.done, file.result) == (path, False, None)
            assert file.write(b"day,") == 4
            file.writelines([b"sum", b"\n"])
            file.flush()
            assert (path.read_text() if old else path.exists()) == (old or False)
        assert path.read_bytes() == b"day,sum\n"
        assert names(tmp_path) == ["a.csv"]
        path.write_text("old")


@rule("M53")
async def test_it_is_the_same_in_an_async_block(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    async with rota.write_file(path, mode="w", encoding="latin-1") as file:
        file.write("é")
    assert path.read_bytes() == b"\xe9"
    await fail(path)
    assert path.read_bytes() == b"\xe9"
    assert names(tmp_path) == ["a.txt"]


@rule("M53")
def test_an_error_in_the_block_leaves_nothing_and_the_old_file(tmp_path: Path) -> None:
    old = tmp_path / "old.txt"
    old.write_text("old")
    errors: list[type[BaseException]] = [Broken, KeyboardInterrupt]
    for error in errors:
        for path in (old, tmp_path / "new.txt"):
            with suppress(error), rota.write_file(path) as file:
                file.write(b"new")
                file.flush()
                raise error
    with (
        pytest.raises(UnicodeEncodeError),
        rota.write_file(tmp_path / "a.txt", mode="w", encoding="ascii") as text,
    ):
        text.write("é")
    assert names(tmp_path) == ["old.txt"]
    assert old.read_text() == "old"


@pytest.mark.usefixtures("umask")
def test_who_may_read_a_file_follows_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    put(path, "new")
    assert path.stat().st_mode & 0o777 == 0o640


@rule("M53")
def test_a_name_may_be_as_long_as_any(tmp_path: Path) -> None:
    longest = ["a" * 255, "é" * 127, "报" * 85, "🎉" * 63]
    for name in longest:
        put(tmp_path / name, "new")
    assert names(tmp_path) == sorted(longest)


@rule("M53")
def test_what_the_disk_refuses_is_its_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "absent" / "a.txt", "new")
    with pytest.raises(IsADirectoryError):
        put(tmp_path / "folder", "new")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == []


def test_a_file_that_cannot_be_is_refused() -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("a.txt", {"mode": "a"}, 'mode must be "wb" or "w", not \'a\''),
        ("a.txt", {"mode": "w", "encoding": "hex"}, "not a text encoding"),
        ("", {}, "path must name a file, not ''"),
        ("/", {}, "path must name a file, not '/'"),
        ("a.txt", {"key": "k"}, "only a handler has a context"),
        ("a.txt", {"key": ""}, "key must"),
        ("a.txt", {"key": "k" * 241}, "key must"),
    ]
    for path, given, said in wrong:
        with pytest.raises(UsageError, match=said):
            rota.write_file(path, **given)


# With a key


@rule("M53")
def test_a_file_with_a_key_is_written_once_and_then_needs_its_directory_no_more(
    app: rota.App, tmp_path: Path
) -> None:
    folder = tmp_path / "2026-01"
    path = folder / "a.csv"
    seen: list[tuple[bool, Any]] = []

    @app.job("report")
    async def report() -> None:
        async with rota.write_file(path, key="report:1", mode="w") as file:
            seen.append((file.done, file.result))
            file.write("new")
            assert file.tell() == 3

    folder.mkdir()
    report.enqueue()
    assert app.drain().succeeded == 1
    path.write_bytes(b"changed by hand")
    report.enqueue()
    assert app.drain().succeeded == 1
    written = {"path": str(path), "bytes": 3}
    assert seen == [(False, None), (True, written)]
    assert path.read_bytes() == b"changed by hand"
    assert names(folder) == ["a.csv"]
    [effect] = app.effects.find("file_generated:report:1")
    assert (effect.status, effect.result, effect.job) == ("done", written, 1)
    path.unlink()
    folder.rmdir()
    report.enqueue()
    assert app.drain().succeeded == 1
    assert names(tmp_path) == []


@rule("M53")
def test_after_an_error_a_file_with_a_key_is_written_by_the_next_attempt(
    app: rota.App, rows: Rows, tmp_path: Path
) -> None:
    errors = {"error": Broken(), "retry": rota.Retry("now"), "snooze": rota.Snooze("0s")}
    left = dict(errors)
    folder = tmp_path / "later"

    @app.job("report")
    def report(key: str) -> None:
        place = folder if key == "missing" else tmp_path
        with rota.write_file(place / key, key=key) as file:
            assert not file.done
            file.write(b"new")
            if failure := left.pop(key, None):
                raise failure

    ids = {key: report.enqueue(key).id for key in (*errors, "missing")}
    app.drain()
    assert names(tmp_path) == []
    assert rows.attempts(ids["missing"])[0]["error_type"] == "FileNotFoundError"
    assert app.effects.find("file_generated:missing") == [], "no file was begun"
    folder.mkdir()
    rows.make_all_due()
    assert app.drain().succeeded == 4
    assert names(tmp_path) == sorted([*errors, "later"])
    assert names(folder) == ["missing"]
    for key in errors:
        [effect] = app.effects.find(f"file_generated:{key}")
        assert (effect.status, effect.uncertain_before) == ("done", 0), key


def kill_at_the_end(url: str, folder: str) -> None:
    """As a program: run a handler whose process is killed before the file is in its place."""
    report_app(url, Path(folder), kills=True).drain()


def report_app(url: str, folder: Path, *, kills: bool) -> rota.App:
    app = rota.App(url)

    @app.job("report", lease="1s")
    def report() -> None:
        with rota.write_file(folder / "a.csv", key="report:1") as file:
            file.write(b"new")
            file.flush()
            if kills:
                os.kill(os.getpid(), signal.SIGKILL)

    return app


@pytest.mark.system
@rule("M33", "M53")
def test_a_process_that_is_killed_leaves_a_part_until_its_job_writes_the_file_again(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    connection.execute("insert into rota.job (job_type) values ('report')")
    program = ["-m", "tests.api.test_files", database, str(tmp_path)]
    assert forked.run(program, env=os.environ, cwd=ROOT).returncode == -signal.SIGKILL
    [part] = names(tmp_path)
    assert part.startswith(".a.csv.1-1.") and part.endswith(".part")
    (tmp_path / ".a.csv.1-9.12345678.part").touch()  # of a later claim
    expire_leases(connection)
    connection.execute("select rota.job_reap('-infinity', 100)")
    connection.execute("update rota.job set run_at = rota.clock()")
    app = report_app(database, tmp_path, kills=False)
    assert app.drain().succeeded == 1
    assert names(tmp_path) == [".a.csv.1-9.12345678.part", "a.csv"]
    assert (tmp_path / "a.csv").read_bytes() == b"new"
    [effect] = app.effects.find("file_generated:report:1")
    assert (effect.status, effect.uncertain_before) == ("done", 1)
    app.close()


if __name__ == "__main__":
    kill_at_the_end(*sys.argv[1:])
