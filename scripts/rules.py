"""Writes the page of the rules: a short one for the repository, for the site one with all tests.

It imports nothing of Rota and of the tests: what makes the site does not install them.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
RULES = TESTS / "support" / "rules.toml"


def write_page(*, is_whole: bool = False) -> str:
    """Return the page of the rules, each with two tests that show it; for the site with all."""
    rules = tomllib.loads(RULES.read_text("utf-8"))
    tests: dict[str, dict[str, str]] = {number: {} for number in rules}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, numbers in tests_with_rules(path):
            sentence = test.removeprefix("test_").replace("_", " ")
            link = f"[{sentence}](../../{path.relative_to(ROOT).as_posix()})"
            for number in numbers:
                tests[number][test] = link
    lines = [
        "# The rules of the product",
        "",
        "This page lists the rules, each with two tests that show it best. A test that would fail",
        'without a rule carries its number: `@rule("M33")`. `make docs` generates this page.',
        "",
        "| Rule | Promise | Two of its tests |",
        "|---|---|---|",
    ]
    for number, rule in rules.items():
        if gone := set(rule["shown"]) - set(tests[number]):
            raise SystemExit(
                f"{RULES.name}: {number} has no {', '.join(gone)}: choose another test"
            )
        shown = "<br>".join(tests[number][name] for name in rule["shown"])
        lines.append(f"| {number} | {rule['promise']} | {shown} |")
    if is_whole:
        for number, links in tests.items():
            lines += ["", f"## {number}: {len(links)} tests", ""]
            lines += [f"- {link}" for link in links.values()]
    return "\n".join(lines) + "\n"


def tests_with_rules(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each test of a file with its rules: its own, its class's and its module's."""
    tree = ast.parse(path.read_text(), filename=str(path))
    yield from _in_body(tree.body, _of_module(tree))


def _in_body(body: list[ast.stmt], inherited: list[str]) -> Iterator[tuple[str, list[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _in_body(node.body, [*inherited, *_numbers(node.decorator_list)])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            numbers = [*inherited, *_numbers(node.decorator_list)]
            if numbers:
                yield node.name, list(dict.fromkeys(numbers))
        elif (
            isinstance(node, ast.Assign)
            and node.targets
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "TestCase"
        ):
            # hypothesis: `test_the_store = TheStore.TestCase`
            target = node.targets[0]
            if isinstance(target, ast.Name) and inherited:
                yield target.id, inherited


def _of_module(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            return _numbers(
                node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            )
    return []


def _numbers(marks: list[ast.expr]) -> list[str]:
    calls = [
        mark
        for mark in marks
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "rule"
    ]
    return [ast.literal_eval(argument) for call in calls for argument in call.args]
