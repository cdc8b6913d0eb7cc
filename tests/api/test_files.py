"""`rota.write_file`: a file is there whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rota
from tests.support.rules import rule


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@rule("M53")
async def test_readers_see_the_old_file_until_the_block_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text("old")
    with rota.write_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    async with rota.write_file(path, mode="w") as file:
        file.write("né")
        assert path.read_text() == "new"
    assert path.read_bytes() == "né".encode()
    assert names(tmp_path) == ["report.csv"]


@rule("M53")
async def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text("old")

    def fail(file: Any) -> None:
        file.write(b"new")
        raise ValueError("half-way")

    with pytest.raises(ValueError, match="half-way"), rota.write_file(path) as file:
        fail(file)
    with pytest.raises(ValueError, match="half-way"):
        async with rota.write_file(path) as file:
            fail(file)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["report.csv"]


@rule("M53")
@pytest.mark.parametrize("name", ["報" * 85, "é" * 127 + "x", "x" * 255], ids=["3", "2", "1"])
def test_every_name_that_the_file_system_takes_can_be_written(tmp_path: Path, name: str) -> None:
    with rota.write_file(tmp_path / name) as file:
        file.write(b"whole")
    assert (tmp_path / name).read_bytes() == b"whole"


@rule("M53")
@pytest.mark.parametrize(
    ("path", "options", "told"),
    [
        ("", {}, "path must name a file"),
        ("report.csv", {"mode": "a"}, 'mode must be "wb" or "w"'),
        ("report.csv", {"mode": "w", "encoding": "hex"}, "not a text encoding"),
        ("report.csv", {"key": "report"}, "outside a running job"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    options: dict[str, Any],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rota.UsageError, match=told), rota.write_file(path, **options):
        pass
    assert names(tmp_path) == []


@rule("M53")
def test_an_error_in_the_block_proves_that_the_file_is_not_there(
    database: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.csv"
    app = rota.App(database)
    found: list[bool] = []

    @app.job("report", takes_context=True)
    def report(ctx: rota.Context, error: bool) -> None:
        with rota.write_file(path, key="report") as file:
            found.append(file.done)
            file.write(b"half" if error else b"whole" if not file.done else b"again")
            if error:
                raise rota.Dead("no rows")

    for error in (True, False, False):
        report.enqueue(error)
        app.drain()
        if error:
            assert app.effects.find("file_generated:report") == []
    assert found == [False, False, True]
    assert path.read_bytes() == b"whole"
    assert names(tmp_path) == ["report.csv"]
    app.close()
