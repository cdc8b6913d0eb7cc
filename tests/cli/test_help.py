"""`rota --help` shows every command in its group."""

from __future__ import annotations

import re

import pytest

from rota.cli import cli, run
from tests.support.rules import rule


@rule("M3")
def test_every_command_stands_in_a_group_and_the_page_fits_a_narrow_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    titles = re.findall(r"^╭─ (.+?) ─+╮$", page, re.MULTILINE)
    assert titles == [
        "Options",
        "Set up",
        "Run",
        "Look",
        "Act on jobs",
        "Schedules and pauses",
        "Find problems",
    ]
    shown = re.findall(r"^│ ([a-z][a-z-]*) ", page, re.MULTILINE)
    commands = [one.name for one in cli.registered_commands]
    commands += [one.name for one in cli.registered_groups]
    assert sorted(shown) == sorted(map(str, commands))
    assert run([]) == 2
    assert capsys.readouterr().out == page
