"""The list of mutants is in order: each still applies, leaves code that can be read, and names tests that there are. `make mutants` does the rest."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.mutants.mutant import ROOT, Mutant, mutants

MUTANTS = mutants()
LEAST = 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_applies_to_the_code_as_it_is(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    changed = mutant.applied(text)
    assert changed != text
    if mutant.file.endswith(".py"):
        ast.parse(changed)
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in _tests(file), test


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= LEAST


def test_a_mutant_whose_line_is_gone_or_there_twice_is_refused() -> None:
    mutant = Mutant(name="m", rules=["M1"], file="f", line="b", tests=["t"], why="w")
    assert mutant.applied("a\n  b\nc\n") == "a\n\nc\n"
    for text in ("a\n", "b\nb\n", "b c\n"):
        with pytest.raises(ValueError, match="should have this line once"):
            mutant.applied(text)


@cache
def _tests(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
