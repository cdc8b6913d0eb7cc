"""What a message advises exists: calls, commands, options and pages."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

import rota
from rota.cli import make_cli
from rota.kinds.webhook import Webhooks
from rota.testing import Harness
from tests.docs.reader import ROOT
from tests.support.rules import rule

CODE = ROOT / "src/rota"
NO_ADVICE = {
    "cli/grammar.py": {"--countdown", "--eta", "--loglevel", "--reason"},  # other tools' words
    "declare/release.py": {"--error-unmatch", "--short"},  # git's
    "embedded/server.py": {
        "--auth", "--builtin-locale", "--encoding", "--locale", "--locale-provider", "--username",
    },
    "integrations/django/management/commands/rota.py": {
        "rota connects by", "--pythonpath", "--settings",
    },
}  # fmt: skip
"""What a file names that is not Rota's to have."""
OF_KINDS = {f"--{name.replace('_', '-')}" for name in inspect.signature(Webhooks.put).parameters}
"""Options of a command that a kind of jobs has, by its parameters."""


@rule("M85")
def test_what_a_message_advises_exists() -> None:
    found = {
        (str(file.relative_to(CODE)), name)
        for file in CODE.rglob("*.py")
        for text in read_messages(file)
        for name in find_names(text)
    }
    assert len(found) > 200
    lacking = {(file, name) for file, name in found if not exists(name)}
    assert lacking == {(file, name) for file, names in NO_ADVICE.items() for name in names}
    invented = "`rota queues stop x`, --colour, await app.jobs.amend(1), ctx.leap() in docs/gone.md"
    assert [*find_names(invented)] == [
        "rota queues stop", "--colour", "app.jobs.amend", "ctx.leap", "docs/gone.md",
    ]  # fmt: skip
    assert not any(map(exists, find_names(invented)))


def read_messages(file: Path) -> Iterator[str]:
    """The texts of a module without its docstrings, with … for what is filled in."""
    tree = ast.parse(file.read_text())
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node.value


def find_names(text: str) -> list[str]:
    return re.findall(
        r"(?<![\w.-])rota [a-z][a-z-]*(?: [a-z][a-z-]*)?"
        r"|(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])"
        r"|(?<![\w./])(?:app|ctx|rota_test)(?:\.[a-z_]+)+(?!\w)"
        r"|docs/[\w/-]+\.md",
        text,
    )


make_command = cache(lambda: typer.main.get_command(make_cli()))


def exists(name: str) -> bool:
    if name.endswith(".md"):
        return (ROOT / name).is_file()
    if name.startswith("--"):
        return name in list_options(make_command()) | OF_KINDS | {"--help"}
    if name.startswith("rota "):
        return is_command(name.split()[1:])
    return has_call(*name.split("."))


def is_command(words: list[str]) -> bool:
    """Whether the words begin with a command; after one that has no parts come its arguments."""
    command: Any = make_command()
    for word in words:
        parts = getattr(command, "commands", None)
        if parts is None:
            return True
        if word not in parts:
            return False
        command = parts[word]
    return True


@cache
def list_options(command: Any) -> frozenset[str]:
    parts = getattr(command, "commands", {}).values()
    own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return frozenset(own.union(*map(list_options, parts)))


def has_call(subject: str, *names: str) -> bool:
    found: Any = {"app": rota.App("postgresql:///x"), "ctx": rota.Context, "rota_test": Harness}[
        subject
    ]
    for name in names:
        if inspect.getattr_static(found, name, None) is None:  # or each instance has it
            return isinstance(found, type) and f"self.{name}: " in inspect.getsource(found)
        found = getattr(found, name)
    return True
