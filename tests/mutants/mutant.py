"""A mutant: the product without one line of a guard, and the tests that must notice.

They are listed in guards.toml.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.support.rules import RULES

ROOT = Path(__file__).parents[2]
GUARDS = Path(__file__).with_name("guards.toml")
NEAR = 12
"""Most lines between a mutant's line and the one it comes after.

Farther away it would belong to other code.
"""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One entry of guards.toml, whose head explains the fields."""

    name: str
    rules: list[str]
    file: str
    line: str
    tests: list[str]
    why: str
    after: str | None = None
    without: str | None = None
    becomes: str | None = None

    def applied(self, text: str) -> str:
        """The text of the file without the guard.

        Raises ValueError when the line is not there, or is there twice: the mutant has rotted.
        """
        lines = text.splitlines(keepends=True)
        found = [at for at, line in enumerate(lines) if line.strip() == self.line]
        if self.after is not None:
            start = self._only(
                [at for at, line in enumerate(lines) if line.strip() == self.after], self.after
            )
            found = [at for at in found if start < at <= start + NEAR][:1]
        at = self._only(found, self.line)
        lines[at] = self._replacement(lines[at])
        return "".join(lines)

    def _replacement(self, line: str) -> str:
        indent = line[: len(line) - len(line.lstrip())]
        if self.without is not None:
            if line.count(self.without) != 1:
                raise ValueError(
                    f"mutant {self.name}: its line should have this once and has it "
                    f"{line.count(self.without)} times: {self.without}"
                )
            return line.replace(self.without, "")
        return "\n" if self.becomes is None else f"{indent}{self.becomes}\n"

    def _only(self, found: list[int], line: str) -> int:
        if len(found) != 1:
            raise ValueError(
                f"mutant {self.name}: {self.file} should have this line once and has it "
                f"{len(found)} times: {line}"
            )
        return found[0]


def mutants() -> list[Mutant]:
    """All of them, in the order of the file.

    Raises ValueError when one says something that cannot be.
    """
    listed = [
        Mutant(**entry) for entry in tomllib.loads(GUARDS.read_text(encoding="utf-8"))["mutant"]
    ]
    for mutant in listed:
        if mutant.without is not None and mutant.becomes is not None:
            raise ValueError(f"{mutant.name}: give `without` or `becomes`, not both")
        if not mutant.tests or not mutant.rules or not set(mutant.rules) <= set(RULES):
            raise ValueError(
                f"{mutant.name}: needs tests, and rules that tests/support/rules.py has"
            )
    if twice := {one.name for one in listed if sum(other.name == one.name for other in listed) > 1}:
        raise ValueError(f"two mutants are called {', '.join(sorted(twice))}")
    return listed
