"""Writes the generated pages of docs/; --check only lists those that are out of date."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
sys.path.insert(0, str(ROOT))

from rota.model.job import Action, Status  # noqa: E402
from rota.model.states import MEANING, TRANSITIONS, action_table  # noqa: E402
from scripts import reference  # noqa: E402
from tests.support.rules import RULES  # noqa: E402


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit("usage: scripts/docs.py [--check]")
    stale = 0
    for name, page in PAGES.items():
        path = ROOT / "docs" / name
        text = page()
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"docs/{name} is out of date: make docs")
        else:
            path.write_text(text)
            print(f"wrote docs/{name}")
    return 1 if check and stale else 0


def rules_page() -> str:
    """Return the page of the rules, each with the tests that keep it."""
    tests: dict[str, list[str]] = {number: [] for number in RULES}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, numbers in tests_with_rules(path):
            sentence = test.removeprefix("test_").replace("_", " ")
            link = f"[{sentence}](../../{path.relative_to(ROOT).as_posix()})"
            for number in numbers:
                tests[number].append(link)
    kept = {number: links for number, links in tests.items() if links}
    lines = [
        "# The rules, and the tests that hold them",
        "",
        "This page lists the rules of the product with the tests that hold them.",
        "`make docs` generates it.",
        f"Each test fails if its rule is broken. Tests hold {len(kept)} of {len(RULES)} rules.",
        "",
        "| Rule | Promise | Tests |",
        "|---|---|---|",
        *(
            f"| {number} | {RULES[number]} | {'<br>'.join(links)} |"
            for number, links in kept.items()
        ),
    ]
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


def states_page() -> str:
    """Return the page of a job's statuses and moves, as tables and as a diagram."""
    moves = [(before, verb, after) for (before, verb), after in TRANSITIONS.items()]
    table = action_table()
    lines = [
        "# Statuses of a job",
        "",
        "This page lists the statuses of a job and every move between them.",
        "`make docs` generates it from `MEANING` and `TRANSITIONS` in",
        "[states.py](../../src/rota/model/states.py).",
        "",
        "| Status | Table | Meaning |",
        "|---|---|---|",
        *(
            f"| `{status}` | `{'job_history' if status.is_over else 'job'}` | {MEANING[status]} |"
            for status in Status
        ),
        "",
        "There are no other moves. A worker that moves a job out of `running` names its claim, and",
        "changes nothing if that claim is not the current one. Recovery moves jobs whose lease",
        "has expired. No worker holds a job that expires. One of a type with",
        '`on_expired="drop"` is dropped instead, also by a worker that claimed it too late.',
        "",
        "| From | Move | To |",
        "|---|---|---|",
        *(
            f"| {f'`{before}`' if before else '(nothing)'} | {verb} | `{after}` |"
            for before, verb, after in moves
        ),
        "",
        "This table shows the status after an [action of a person](../operate/actions.md). A dash",
        "is a refusal, `WrongStatus`:",
        "",
        f"| Status | {' | '.join(Action)} |",
        f"|---|{'---|' * len(Action)}",
        *(
            f"| `{status}` | {' | '.join(_becomes(table[status, action]) for action in Action)} |"
            for status in Status
        ),
        "",
        "A running job with a cancel request becomes `cancelled` when its attempt ends without",
        "success, or by `retry`. `requeue` and `archive` archive the dead job: it moves to",
        "history, still `dead`, and can only be run again. `requeue` and `run_again` make a new",
        "job, `queued`. `reschedule` moves a job to another time, priority or queue.",
        "",
        "![The seven statuses of a job, and the moves between them](../pictures/states.svg)",
    ]
    return "\n".join(lines) + "\n"


def decisions_page() -> str:
    """Return the list of the decisions, by their titles."""
    files = sorted((DOCS / "project/decisions").glob("0*.md"))
    titles = [(file.name, file.read_text().partition("\n")[0].removeprefix("# ")) for file in files]
    lines = [
        "# Decisions",
        "",
        "Why the house is as it is: what was measured, and what was decided against.",
        "`make docs` generates this list.",
        "",
        *(f"- [{title}]({name})" for name, title in titles),
    ]
    return "\n".join(lines) + "\n"


def _becomes(status: Status | None) -> str:
    return "—" if status is None else f"`{status}`"


def fill_page(page: Path) -> str:
    """Return a page of the reference with its generated parts written anew."""
    return reference.fill(page.read_text("utf-8"))


PAGES: dict[str, Callable[[], str]] = {
    "project/rules.md": rules_page,
    "project/decisions/README.md": decisions_page,
    "reference/statuses.md": states_page,
    # Last the one that reads the others.
    **{
        f"reference/{page.name}": partial(fill_page, page)
        for page in sorted(reference.list_pages(), key=lambda page: page.name == "api.md")
    },
}


if __name__ == "__main__":
    sys.exit(main())
