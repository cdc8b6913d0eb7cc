"""The release of an application that names none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rota.declare.release import UNKNOWN, release_of


@pytest.mark.parametrize(
    ("module", "release"),
    [
        ("declared.jobs", "1"),
        ("folder", "2"),
        ("file", "3"),
        ("linked.jobs", "4"),
        ("old", UNKNOWN),
        ("nobody", UNKNOWN),
        (None, UNKNOWN),
        ("__main__", UNKNOWN),
    ],
)
def test_it_is_the_version_of_the_distribution_that_the_module_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str | None, release: str
) -> None:
    def install(version: str, record: str = "", top_level: str = "") -> None:
        place = tmp_path / f"shop{version}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Name: shop{version}\nVersion: {version}\n")
        (place / "RECORD").write_text(record)
        if top_level:
            (place / "top_level.txt").write_text(top_level)

    install("0", "folder_of_another/a.py,,\nprofile.py,,\nshop/old/a.py,,\n")
    install("1", "old/a.py,,\n", "other\ndeclared\n")
    install("2", "folder/__init__.py,,\n")
    install("3", "a.py,,\nfile.py,,\n", "\n")
    install("4", "linked.pth,,\n")  # installed with `pip install -e`
    install("5", ".hidden/a.py,,\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # a script
    assert release_of(module) == release
