"""The sample and the examples of the pages pass mypy --strict and basedpyright, and the files in
tests/typing have exactly the errors that their comments expect.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.typed import write_examples

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
TYPING = ROOT / "tests/typing"
SAMPLE = ROOT / "tests/contract/sample.py"
FILES = [*sorted(TYPING.glob("*.py")), SAMPLE]

Place = tuple[str, int]
"""File and line."""


@dataclass(frozen=True)
class Findings:
    """What a checker said, by place: the rules of errors, and the types that it revealed."""

    errors: dict[Place, set[str]] = field(default_factory=lambda: defaultdict(set))
    revealed: dict[Place, str] = field(default_factory=dict)


def mypy() -> Findings:
    """Run mypy as `make check` does, and with its cache, on the files alone."""
    findings = Findings()
    options = ["--output=json", "--show-error-codes", "--strict"]
    for said in map(json.loads, _run("mypy", *options, *map(str, FILES)).splitlines()):
        place = (Path(said["file"]).name, said["line"])
        if said["severity"] == "error":
            findings.errors[place].add(said["code"])
        elif match := re.fullmatch('Revealed type is "(.*)"', said["message"]):
            # Where a name comes from is not what a reader sees.
            findings.revealed[place] = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", match[1])
    return findings


def basedpyright() -> Findings:
    """Run basedpyright in its strict mode.

    Unused imports alone are no error, because the sample has one.
    """
    findings = Findings()
    options = [
        "--outputjson",
        "--project",
        str(TYPING / "pyrightconfig.json"),
        "--pythonpath",
        sys.executable,
    ]
    for said in json.loads(_run("basedpyright", *options))["generalDiagnostics"]:
        place = (Path(said["file"]).name, said["range"]["start"]["line"] + 1)
        if said["severity"] == "error":
            findings.errors[place].add(said.get("rule", "syntax"))
        elif match := re.fullmatch('Type of ".*" is "(.*)"', said["message"], re.DOTALL):
            findings.revealed[place] = match[1]
    return findings


@pytest.mark.parametrize(("checker", "column"), [(mypy, 0), (basedpyright, 1)])
def test_checkers_find_the_errors_that_the_typing_files_expect_and_none_in_the_sample(
    checker: Callable[[], Findings], column: int
) -> None:
    found = checker()

    expected = {
        place: set(rules.split("|")[column].replace(" ", "").split(","))
        for place, rules in _comments("E")
    }
    assert {place: rules for place, rules in found.errors.items() if rules} == expected
    assert not any(file == SAMPLE.name for file, _ in found.errors)
    for place, part in _comments("R"):
        assert part in found.revealed[place], place


def test_mypy_finds_no_error_in_the_examples_of_the_pages(tmp_path: Path) -> None:
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir=../cache"]
    assert [
        line
        for place in write_examples(tmp_path)
        for line in _run("mypy", *options, "--explicit-package-bases", ".", cwd=place).splitlines()
        if ": error: " in line and not line.startswith(str(ROOT))
    ] == []


def test_basedpyright_finds_no_error_in_the_examples_of_the_pages(tmp_path: Path) -> None:
    source = [str(ROOT / "src")]
    config = {
        "extraPaths": source,
        "executionEnvironments": [
            {"root": place.name, "extraPaths": source} for place in write_examples(tmp_path)
        ],
        "typeCheckingMode": "strict",
        # About other libraries.
        "reportMissingTypeStubs": False,
        "reportDeprecated": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    options = ["--outputjson", "--pythonpath", sys.executable]
    assert [
        f"{said['file']}:{said['range']['start']['line'] + 1} {said['message']}"
        for said in json.loads(_run("basedpyright", *options, cwd=tmp_path))["generalDiagnostics"]
        if said["severity"] == "error"
    ] == []


LIBRARIES = ("sqlalchemy", "sqlmodel", "asyncpg", "django", "asgiref")


def test_mypy_finds_no_error_where_the_libraries_of_connections_are_not_installed(
    tmp_path: Path,
) -> None:
    python = _make_environment(tmp_path / "env")
    (tmp_path / "user.py").write_text((TYPING / "without_libraries.py").read_text())
    options = ["--strict", f"--python-executable={python}", "--no-incremental", "user.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "MYPYPATH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _make_environment(place: Path) -> Path:
    """Make an environment like this one, without the libraries and with Rota; return its Python."""
    venv.create(place, symlinks=True)
    [site] = place.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith((*LIBRARIES, "rota")) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    (site / "rota").symlink_to(ROOT / "src/rota")
    return place / "bin/python"


def _comments(kind: str) -> Iterator[tuple[Place, str]]:
    for path in FILES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := re.search(rf"  # {kind}: (.+)$", line):
                yield (path.name, number), match[1]


def _run(module: str, *arguments: str, cwd: Path = ROOT) -> str:
    environment = {**os.environ, "MYPYPATH": f"{ROOT / 'src'}:{cwd}"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    # 1: it found errors; more: it could not look.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout
