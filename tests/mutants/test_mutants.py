"""The list of guards is in order, and `make mutants` ends what a mutant leaves behind; the command
itself does the rest.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import psutil
import pytest

from tests.mutants import subreaper
from tests.mutants.mutant import GUARDS, ROOT, choose_changed, find_base, git, read_mutants
from tests.sim.bugs import read_bugs


@cache
def _find_tests(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_each_guard_and_each_known_bug_stands_in_the_code() -> None:
    guards = read_mutants((ROOT / GUARDS).read_text(encoding="utf-8"))
    for mutant in [*guards, *read_bugs()]:
        changed = mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
        if mutant.file.endswith(".py"):
            ast.parse(changed, mutant.name)
    for mutant in guards:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert name in _find_tests(file), f"{mutant.name}: {test}"


def test_what_changed_is_a_guards_file_its_tests_or_its_entry(tmp_path: Path) -> None:
    (tmp_path / GUARDS).parent.mkdir(parents=True)
    (tmp_path / "src" / "rota").mkdir(parents=True)

    def write(names: str, out: str = "x") -> None:
        entries = (
            f'[{name}]\nfile = "{name}"\nout = "{out if name == "entry" else "x"}"\n'
            f'tests = ["{name}.py::test_it"]\n'
            for name in names.split()
        )
        (tmp_path / GUARDS).write_text("".join(entries))

    write("code test entry same")
    git(tmp_path, "init", "-b", "main")
    git(tmp_path, "config", "user.name", "t")
    git(tmp_path, "config", "user.email", "t@example.org")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "base")
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    write("code test entry new same", out="y")
    (tmp_path / "src" / "rota" / "code").touch()
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "change")
    (tmp_path / "tests" / "test.py").touch()
    mutants = read_mutants((tmp_path / GUARDS).read_text())
    chosen = choose_changed(mutants, tmp_path, find_base(tmp_path))
    assert [mutant.name for mutant in chosen] == ["code", "test", "entry", "new"]


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
@pytest.mark.parametrize(
    ("seconds", "then", "status"), [("60", "exit 3", 3), ("1", "sleep 300", subreaper.OVER_TIME)]
)
def test_a_run_leaves_no_process_behind(seconds: str, then: str, status: int) -> None:
    orphan = "setsid sleep 300 >&2 & echo $!"
    ran = subprocess.run(
        [sys.executable, "-m", subreaper.__name__, seconds, "sh", "-c", f"{orphan}; {then}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ran.returncode == status
    assert not psutil.pid_exists(int(ran.stdout))
