"""Which guards a change touches: those whose file, whose tests or whose entry in guards.toml it
changes.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.mutants.mutant import GUARDS, Mutant

MAIN = "origin/main"
ON_MAIN = "1 day ago"
"""On the main branch, newer commits than this count as the change."""


def find_base(root: Path) -> str:
    """Return the merge base with the main branch; on that branch the last commit of a day ago."""
    head = _git(root, "rev-parse", "HEAD")
    base = _git(root, "merge-base", "HEAD", MAIN, may_fail=True)
    if base and base != head:
        return base
    older = _git(root, "rev-list", "-1", f"--before={ON_MAIN}", "HEAD")
    return older or _git(root, "rev-list", "--max-parents=0", "HEAD").splitlines()[0]


def find_head(root: Path) -> str:
    """Return the commit that is checked out."""
    return _git(root, "rev-parse", "HEAD")


def draw(mutants: Sequence[Mutant], count: int, commit: str) -> list[Mutant]:
    """Return so many of them, in their order: the same for a commit, others for the next."""
    drawn = set(Random(commit).sample(range(len(mutants)), count))
    return [mutant for at, mutant in enumerate(mutants) if at in drawn]


def choose_changed(mutants: Sequence[Mutant], root: Path, base: str) -> list[Mutant]:
    """Return the mutants that a change since `base` touches, what is not committed included."""
    files = set(_git(root, "diff", "--name-only", base).splitlines())
    files |= set(_git(root, "ls-files", "--others", "--exclude-standard").splitlines())
    name = (
        GUARDS.relative_to(root)
        if GUARDS.is_relative_to(root)
        else Path("tests/mutants/guards.toml")
    )
    before = _git(root, "show", f"{base}:{name.as_posix()}", may_fail=True)
    entries = [Mutant(**entry) for entry in tomllib.loads(before).get("mutant", [])]
    return [
        mutant
        for mutant in mutants
        if mutant not in entries or not files.isdisjoint({mutant.file, *_test_files(mutant)})
    ]


def _test_files(mutant: Mutant) -> list[str]:
    return [test.partition("::")[0] for test in mutant.tests]


def _git(root: Path, *arguments: str, may_fail: bool = False) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=not may_fail
    )
    return done.stdout.strip() if done.returncode == 0 else ""
