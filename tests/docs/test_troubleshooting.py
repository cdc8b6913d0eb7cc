"""troubleshooting.md quotes messages as the code says them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.reader import ROOT, read_page
from tests.support.rules import rule

PAGE = read_page("troubleshooting.md").partition("## No message")[0]
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
FIELD = re.compile(r"\{[a-z_.]+\}")
LEAST = 12
"""Letters of its own that a text must have to be what a page quotes."""


@cache
def said() -> tuple[str, ...]:
    """The texts of the code, with … for what is filled in."""
    found: set[str] = set()
    for file in (ROOT / "src" / "rota").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                found.add(FIELD.sub("…", "".join(_parts(node))))
    return tuple(text for text in found if len(text.replace("…", "")) >= LEAST)


def _parts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _parts(part)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    else:
        yield "…"


@rule("M3")
@pytest.mark.parametrize("message", MESSAGES)
def test_each_message_of_the_page_is_one_of_the_code(message: str) -> None:
    """It is a part of a text; or all of a text with something for each …."""
    quoted = re.compile(".+?".join(map(re.escape, message.split("…"))), re.DOTALL)
    assert any(quoted.search(text) or re.fullmatch(_filled(text), message) for text in said()), (
        message
    )


def _filled(text: str) -> str:
    return ".*?".join(map(re.escape, re.split("…+", text)))


def test_a_message_that_the_code_does_not_say_is_found() -> None:
    with pytest.raises(AssertionError):
        test_each_message_of_the_page_is_one_of_the_code("the database is on holiday until …")


def test_no_message_is_quoted_twice_and_there_are_many() -> None:
    assert len(set(MESSAGES)) == len(MESSAGES) > 30
