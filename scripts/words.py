"""Finds words of the house in what users read: pages, messages and the docstrings of public names
say the words of the field.

Part of `make check`. docs/understand/glossary.md has the words to write in their place.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import rota
import rota.testing

ROOT = Path(__file__).resolve().parent.parent
PAGES_MAX = 0
"""Private words that are left in pages. It only falls."""
MESSAGES_MAX = 0
"""And in messages."""
DOCSTRINGS_MAX = 0
"""And in docstrings of public members."""
PRIVATE = re.compile(
    r"""\b(
    (un)?charged | upkeep | ticks? | lanes? | caps?(?!=) | parked | reap(ed|er)? | lost\ workers?
    | suspects? | frontier | settled? | the\ other\ side | (nobody|a\ person)\ (decides|must)
    | urgent
    | clock\ changes | what\ (came|becomes|became)\ of | also\ if
    | hand(s|ed|ing)?\ ((it|them|the\ rest|a\ job|jobs)\ )?back
    )\b""",
    re.VERBOSE,
)
INTERNAL = "project"
"""The part of the pages about the inside, or that quote it."""
QUOTED = re.compile(r"^```.*?^```$|`[^`]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
"""Code and addresses: names stay as they are."""

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SQL_TEXT = re.compile(r"'([^']*)'")


def main() -> int:
    """Print how many there are, and which if there are too many."""
    status = 0
    for what, found, most in (
        ("pages for users", list(in_pages()), PAGES_MAX),
        ("messages", list(in_messages()), MESSAGES_MAX),
        ("docstrings", sorted(in_docstrings(rota, rota.testing)), DOCSTRINGS_MAX),
    ):
        print(f"{len(found):4}  words of the house in {what} (at most {most})")
        if len(found) > most:
            print(*found, sep="\n  ", file=sys.stderr)
            status = 1
    return status


def in_pages() -> Iterator[str]:
    """Each private word in the README and in the pages for users, with its place."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if INTERNAL not in page.parts:
            text = QUOTED.sub(lambda found: "\n" * found[0].count("\n"), page.read_text("utf-8"))
            for number, line in enumerate(text.splitlines(), 1):
                for found in PRIVATE.finditer(line):
                    yield f"{page.relative_to(ROOT)}:{number}: {found[0]}"


def in_messages() -> Iterator[str]:
    """Each string of the code, but for docstrings, that has several words and a private one."""
    for file in sorted((ROOT / "src" / "rota").rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in alone:
                continue
            if isinstance(node.value, str) and " " in node.value.strip():
                found = PRIVATE.search(node.value)
                if found is not None:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: {found[0]}"
    for file in sorted((ROOT / "src" / "rota" / "store" / "schema").rglob("*.sql")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            for text in SQL_TEXT.findall(line.split("--")[0]):
                if " " in text.strip() and (found := PRIVATE.search(text)):
                    yield f"{file.relative_to(ROOT)}:{number}: {found[0]}"


def in_docstrings(*modules: ModuleType) -> set[str]:
    """Each private word in the docstrings of what these modules name, and of its public members."""
    found: set[str] = set()
    for module in modules:
        own = [
            name
            for name, value in vars(module).items()
            if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
        ]
        for name in getattr(module, "__all__", own):
            member = getattr(module, name)
            if inspect.ismodule(member):
                found |= in_docstrings(member)
            for part in member.__mro__ if inspect.isclass(member) else [member]:
                named = inspect.isclass(part) or inspect.isroutine(part)
                if named and part.__module__.startswith("rota"):
                    found |= {*_in_docstrings_of(part)}
    return found


def _in_docstrings_of(thing: Any) -> Iterator[str]:
    source = textwrap.dedent("".join(inspect.getsourcelines(thing)[0]))
    for text in _docstrings(ast.parse(source).body[0]):
        for word in PRIVATE.finditer(text):
            yield f"{thing.__module__}.{thing.__qualname__}: {word[0]}: {text.strip()[:60]}"


def _docstrings(tree: ast.AST) -> Iterator[str]:
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
        elif isinstance(node, _NAMED) and (node.name[0] != "_" or node.name == "__init__"):
            yield from _docstrings(node)


if __name__ == "__main__":
    sys.exit(main())
