"""A mutant: the product without one guard, and the tests that must notice.

They are listed in guards.toml, whose head explains the fields.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUARDS = "tests/mutants/guards.toml"
MAIN = "origin/main"
ON_MAIN = "1 day ago"
"""On the main branch, newer commits than this count as the change."""


@dataclass(frozen=True)
class Mutant:
    """One entry of guards.toml, with paths from the root of the tree."""

    name: str
    file: str
    tests: list[str]
    out: str
    to: str = ""

    def apply(self, text: str) -> str:
        """Return the text of the file without the guard.

        Raises ValueError when the guard does not stand there once: the mutant is out of date.
        """
        if (count := text.count(self.out)) != 1:
            raise ValueError(f"{self.name}: {self.file} has this {count} times: {self.out!r}")
        return text.replace(self.out, self.to)


def read_mutants(text: str) -> list[Mutant]:
    """Return what such a text lists, in its order. Raises TypeError for entries of another form."""
    return [
        Mutant(
            name,
            f"src/rota/{guard.pop('file')}",
            [f"tests/{at}" for at in guard.pop("tests", [])],
            **guard,
        )
        for name, guard in tomllib.loads(text).items()
    ]


def choose_changed(mutants: Sequence[Mutant], root: Path, base: str) -> list[Mutant]:
    """Return those whose file, tests or entry have changed since `base`, committed or not."""
    files = set(git(root, "diff", "--name-only", base).splitlines())
    files |= set(git(root, "ls-files", "--others", "--exclude-standard").splitlines())
    try:
        before = read_mutants(git(root, "show", f"{base}:{GUARDS}", may_fail=True))
    except TypeError:
        before = []
    return [
        mutant
        for mutant in mutants
        if mutant not in before
        or not files.isdisjoint([mutant.file, *(test.partition("::")[0] for test in mutant.tests)])
    ]


def find_base(root: Path) -> str:
    """Return the merge base with the main branch; on that branch the last commit of a day ago."""
    head = git(root, "rev-parse", "HEAD")
    base = git(root, "merge-base", "HEAD", MAIN, may_fail=True)
    if base and base != head:
        return base
    older = git(root, "rev-list", "-1", f"--before={ON_MAIN}", "HEAD")
    return older or git(root, "rev-list", "--max-parents=0", "HEAD").splitlines()[0]


def git(root: Path, *arguments: str, may_fail: bool = False) -> str:
    """Return what git prints; if it may fail and does, nothing."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=not may_fail
    )
    return done.stdout.strip() if done.returncode == 0 else ""
