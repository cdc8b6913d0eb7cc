"""Writes the generated pages of docs/; --check only lists those that are out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

from rota.model.job import Action, Status  # noqa: E402
from rota.model.states import MEANING, TRANSITIONS  # noqa: E402
from scripts import reference, rules  # noqa: E402


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


def states_page() -> str:
    """Return the page of a job's statuses and moves, as tables and as a diagram."""
    moves: dict[tuple[str, Status], list[str]] = {}
    for (before, verb), after in TRANSITIONS.items():
        if verb not in [*Action]:
            moves.setdefault((verb, after), []).append(f"`{before}`" if before else "(nothing)")
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
        "The two tables below have all moves. A worker that moves a job out of `running` names its",
        "claim, and changes nothing if that claim is not the current one. Recovery moves jobs",
        "whose lease has expired. No worker holds a job that expires. One of a type with",
        '`on_expired="drop"` is dropped instead, also by a worker that claimed it too late.',
        "",
        "| From | Move | To |",
        "|---|---|---|",
        *(
            f"| {', '.join(before)} | {verb} | `{after}` |"
            for (verb, after), before in moves.items()
        ),
        "",
        "This table shows the status after an [action of a person](../operate/actions.md). A dash",
        "is a refusal, `WrongStatus`. A handler can cancel its job, too.",
        "",
        f"| Status | {' | '.join(Action)} |",
        f"|---|{'---|' * len(Action)}",
        *(
            f"| `{status}` | {' | '.join(_becomes(status, action) for action in Action)} |"
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
        "Each page has a question, what was measured, what was decided, and what was rejected.",
        "`make docs` generates this list.",
        "",
        *(f"- [{title}]({name})" for name, title in titles),
    ]
    return "\n".join(lines) + "\n"


def _becomes(status: Status, action: Action) -> str:
    after = TRANSITIONS.get((status, action.value))
    return "—" if after is None else f"`{after}`"


def fill_page(page: Path) -> str:
    """Return a page with its generated parts written anew."""
    return reference.fill(page.read_text("utf-8"))


PAGES: dict[str, Callable[[], str]] = {
    "project/rules.md": rules.write_page,
    "project/decisions/README.md": decisions_page,
    "reference/statuses.md": states_page,
    # Last the one that reads the others.
    **{
        page.relative_to(DOCS).as_posix(): partial(fill_page, page)
        for page in sorted(reference.list_pages(), key=lambda page: page.name == "api.md")
    },
}


if __name__ == "__main__":
    sys.exit(main())
