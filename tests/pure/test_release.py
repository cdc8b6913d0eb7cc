"""The release of an application whose code names none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rota.declare.release import RELEASE_VARIABLES, UNKNOWN, read_release, release_of


def test_it_is_the_first_variable_that_names_a_release() -> None:
    assert read_release({"RELEASE": "1", "FLY_MACHINE_VERSION": "2"}) is None
    named = {name: f"of {name}" for name in RELEASE_VARIABLES}
    for name in RELEASE_VARIABLES:
        assert read_release(named) == f"of {name}"
        named[name] = " "  # as of an empty label
    assert read_release({"ROTA_RELEASE": "x" * 201, "GITHUB_SHA": "abc"}) == "abc"


def test_it_is_the_commit_of_the_checkout_that_has_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in RELEASE_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        ran = subprocess.run(
            ["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True
        )
        return ran.stdout.strip()

    (tmp_path / "shop_of_git.py").touch()
    git("init", "-q")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("shop_of_git")
    assert release_of("shop_of_git") == UNKNOWN, "no commit has it"
    git("add", "shop_of_git.py")
    git("commit", "-q", "-m", "first")
    (tmp_path / "not_of_git.py").touch()
    __import__("not_of_git")
    monkeypatch.setenv("GIT_DIR", os.devnull)  # as in a hook of another repository
    assert release_of("not_of_git") == UNKNOWN
    commit = release_of("shop_of_git")
    monkeypatch.delenv("GIT_DIR")
    assert git("rev-parse", "HEAD").startswith(commit) and len(commit) == 12
    monkeypatch.setenv("ROTA_RELEASE", "7")
    assert release_of("shop_of_git") == "7"
    monkeypatch.delenv("ROTA_RELEASE")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release_of("shop_of_git") == UNKNOWN, "there is no git"


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
    for name in RELEASE_VARIABLES:
        monkeypatch.delenv(name, raising=False)

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
