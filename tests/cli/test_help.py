"""`rota --help` shows every command in its group, and an unknown word is answered."""

from __future__ import annotations

import re

import pytest
import typer

from rota.cli import cli, run
from rota.cli.grammar import _MEANT, PAGE
from tests.support.rules import rule


@rule("M3")
def test_every_command_stands_in_a_group_and_the_page_fits_a_narrow_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert [line for line in page.splitlines() if line in PAGE] == list(PAGE)
    rows = re.findall(r"^  (\S.*?)  +(\S.*)$", page, re.MULTILINE)
    assert len(rows) <= 22
    commands = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    assert sorted(name for names, _ in rows for name in names.split(", ")) == sorted(commands)
    for names, text in rows:
        verbs = getattr(commands[names.split(", ")[0]], "commands", {})
        assert not verbs or text.endswith(", ".join(verbs)), names
    assert run([]) == 2
    assert capsys.readouterr().out == page


@rule("M3")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["pause", "email"], "did you mean `rota queues pause` or `rota schedules pause`?"),
        (["settle", "mail:5", "--done"], "did you mean `rota effects resolve`?"),
        (["lanes"], "did you mean `rota groups`?"),
        (["help"], "did you mean `rota --help`?"),
        (["dead"], "did you mean `rota jobs --status dead`?"),
        (["init"], "did you mean `rota migrate`?"),
        (["--app", "a:b", "work"], "as in `rota work --app shop:app`; see rota --help"),
        (["work", "-A", "a:b"], "did you mean --app?; see rota work --help"),
        (["work", "-c", "4"], "did you mean --concurrency?; see rota work --help"),
        (["enqueue", "a", "--countdown", "5"], "mean --delay?; see rota enqueue --help"),
        (["cancel", "--reason", "x"], "did you mean --why?; see rota cancel --help"),
        (["jbos"], "did you mean `rota jobs`?"),
        (["queues", "list"], "did you mean `rota queues`?"),
        (["schedules", "nightly"], "did you mean `rota schedules show nightly`?"),
        (["breakers", "trap", "smtp"], "did you mean `rota breakers trip`?"),
        (["limits", "smtp"], "; see rota limits --help"),
        (
            ["queues", "--url", "postgresql://staging", "pause", "email"],
            "--url goes after the verb: rota queues pause … --url",
        ),
    ],
)
def test_an_unknown_word_or_a_misplaced_option_is_answered_with_what_may_be_meant(
    arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err.rstrip("\n").endswith(answer)


def test_every_hint_names_a_command_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for words in _MEANT.values():
        for word in words:
            command = [part for part in word.split() if not part.startswith("--")]
            assert run([*command, "-h"]) == 0, word
            assert "Usage: rota" in capsys.readouterr().out
