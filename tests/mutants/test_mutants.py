"""The list of mutants is in order: each still applies, leaves code that can be read, and names
tests that there are.

`make mutants` does the rest.
"""

from __future__ import annotations

import ast
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.changed import choose_changed, draw, find_base, find_head
from tests.mutants.mutant import ROOT, Mutant, mutants

MUTANTS = mutants()
LEAST = 30


def test_each_mutant_applies_to_the_code_as_it_is() -> None:
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        changed = mutant.applied(text)
        assert changed != text, mutant.name
        if mutant.file.endswith(".py"):
            ast.parse(changed, mutant.name)
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert name.partition("[")[0] in _tests(file), f"{mutant.name}: {test}"


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= LEAST


def test_a_mutant_whose_line_is_gone_or_there_twice_is_refused() -> None:
    mutant = Mutant(name="m", rules=["M1"], file="f", line="b", tests=["t"], why="w")
    assert mutant.applied("a\n  b\nc\n") == "a\n\nc\n"
    for text in ("a\n", "b\nb\n", "b c\n"):
        with pytest.raises(ValueError, match="should have this line once"):
            mutant.applied(text)


def _git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def _mutant(name: str, **fields: str) -> str:
    given = {"name": name, "file": f"{name}.py", "line": "x", "why": "w"} | fields
    lines = "".join(f'{key} = "{value}"\n' for key, value in given.items())
    return f'[[mutant]]\n{lines}rules = ["M1"]\ntests = ["tests/test_{name}.py::test_it"]\n'


def test_what_changed_since_the_merge_base_is_a_guards_file_its_tests_or_its_entry(
    tmp_path: Path,
) -> None:
    guards = tmp_path / "tests" / "mutants" / "guards.toml"
    guards.parent.mkdir(parents=True)
    names = ("code", "test", "entry", "new", "same")
    for name in names:
        (tmp_path / f"{name}.py").write_text("x\n")
        (tmp_path / "tests" / f"test_{name}.py").write_text("")
    guards.write_text("".join(_mutant(name) for name in names if name != "new"))
    _git(tmp_path, "init", "-b", "main")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-m", "base")
    _git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    (tmp_path / "code.py").write_text("x\ny\n")
    _git(tmp_path, "commit", "-am", "one")
    (tmp_path / "tests" / "test_test.py").write_text("# another\n")
    guards.write_text(
        "".join(_mutant(name, why="other" if name == "entry" else "w") for name in names)
    )
    listed = [Mutant(**entry) for entry in tomllib.loads(guards.read_text())["mutant"]]
    chosen = choose_changed(listed, tmp_path, find_base(tmp_path))
    assert [mutant.name for mutant in chosen] == ["code", "test", "entry", "new"]
    _git(tmp_path, "commit", "-am", "two")
    assert choose_changed(listed, tmp_path, "HEAD") == []
    _git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert find_base(tmp_path)  # on the main branch itself
    drawn = draw(listed, 2, find_head(tmp_path))
    assert drawn == draw(listed, 2, find_head(tmp_path)) and len(drawn) == 2
    assert [one for one in listed if one in drawn] == drawn
    assert len({tuple(one.name for one in draw(listed, 2, str(at))) for at in range(50)}) > 5


@cache
def _tests(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
