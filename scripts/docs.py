"""Writes the generated pages of docs/; --check only lists those that are out of date."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
sys.path.insert(0, str(ROOT))

from rota.declare.options import (  # noqa: E402
    JOB_DEFAULTS,
    JOB_OPTIONS,
    JobOptions,
)
from rota.model.job import Action, Status  # noqa: E402
from rota.model.retry import RetryPolicy  # noqa: E402
from rota.model.states import MEANING, TRANSITIONS, action_table  # noqa: E402
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
        "# The states of a job",
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
        "```mermaid",
        "stateDiagram-v2",
        *(f"    {before or '[*]'} --> {after}: {verb}" for before, verb, after in _arrows(moves)),
        *(f"    {status} --> [*]" for status in Status if status.is_over),
        "```",
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


def _arrows(
    moves: list[tuple[Status | None, str, Status]],
) -> Iterator[tuple[Status | None, str, Status]]:
    """Merge the moves between the same two statuses into one arrow."""
    verbs: dict[tuple[Status | None, Status], list[str]] = {}
    for before, verb, after in moves:
        verbs.setdefault((before, after), []).append(verb)
    for (before, after), between in verbs.items():
        yield before, ", ".join(between), after


MORE = {
    "expires": "concepts.md#expiry",
    "unique": "concepts.md#idempotency-keys",
    "ordered": "lanes.md",
    "max_running": "lanes.md#concurrency-limits",
    "transactional": "transactions.md#require-a-transaction",
    "history": "../operate/retention.md#types-that-keep-failures-only",
    "breaker": "breakers.md",
    "rate_limit": "rate-limits.md",
    "process": "concepts.md#work-that-needs-the-cpu",
}
"""Where the reference sends a reader of an option, from the part that explains."""
_ROW = re.compile(r"\| `(\w+)` \|.*")


GROUPS = {
    "unique": ("function, or `rota.Unique`", "[see below](#rotaunique)"),
    "ordered": ("function, or `rota.Ordered`", "[see below](#rotaordered)"),
    "process": ("yes or no, or `rota.Process`", "[see below](#rotaprocess)"),
}
"""The unit and the values of options that are groups of others."""


def reference_page() -> str:
    """Return the reference with the rows of a job type's options written anew, where each stands;
    a new option comes last."""
    before, heading, rest = (
        (DOCS / "reference/reference.md").read_text().partition("## `job(...)`\n")
    )
    table, after = re.split(r"(?<=\|\n)(?=\n)", rest, maxsplit=1)
    table = "".join(line for line in table.splitlines(keepends=True) if not _is_gone(line))
    rows = {name: option_row(name) for name in JOB_DEFAULTS}
    lines = [
        rows.pop(found[1], line) if (found := _ROW.fullmatch(line)) else line
        for line in table.splitlines()
    ]
    return before + heading + "\n".join([*lines, *rows.values()]) + "\n" + after


def _is_gone(line: str) -> bool:
    """Whether a row is of an option that there is no more."""
    found = _ROW.fullmatch(line.rstrip("\n"))
    return found is not None and found[1] not in {*JOB_DEFAULTS, "name", "takes_context", "chunk"}


def option_row(name: str) -> str:
    """Return the row of an option: its kind's unit and range, its default, and its docstring."""
    unit, values = GROUPS.get(name) or next(
        (one.kind.unit, one.kind.range) for one in JOB_OPTIONS.values() if one.name == name
    )
    default = JOB_DEFAULTS[name]
    if isinstance(default, RetryPolicy):
        shown = 'rota.Exponential("10s", cap="1h")'
    else:
        shown = f'"{default}"' if isinstance(default, str) else repr(default)
    meaning = option_meanings()[name]
    if default is not None:
        meaning = re.sub(r" Defaults to .*", "", meaning)
    meaning = meaning.removesuffix(" Defaults to none.")
    for said in (f": {values}", f", {values}", f"{values}; "):  # the column has it
        meaning = meaning.replace(said, "") if values else meaning
    meaning = meaning[0].upper() + meaning[1:]
    more = f" [More](../understand/{MORE[name]})" if name in MORE else ""
    return f"| `{name}` | {unit} | `{shown}` | {values} | {meaning}{more} |"


@cache
def option_meanings() -> dict[str, str]:
    """Return the docstring of each option of a job type, as one line."""
    [declaration] = ast.parse(inspect.getsource(JobOptions)).body
    assert isinstance(declaration, ast.ClassDef)
    return {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in pairwise(declaration.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


PAGES: dict[str, Callable[[], str]] = {
    "project/rules.md": rules_page,
    "project/decisions/README.md": decisions_page,
    "understand/states.md": states_page,
    "reference/reference.md": reference_page,
}


if __name__ == "__main__":
    sys.exit(main())
