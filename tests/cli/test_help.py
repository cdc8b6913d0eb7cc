"""`rota` shows every command in its group, and an unknown word is answered."""

from __future__ import annotations

import re

import pytest
import typer

from rota.cli import cli, run
from rota.cli.grammar import _MEANT
from tests.support.rules import rule


@rule("M3")
def test_every_command_stands_in_a_group_and_has_a_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 2
    page = capsys.readouterr().out
    rows = re.findall(r"^  (\S.*?)  +(\S.*)$", page, re.MULTILINE)
    commands = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    assert sorted(name for names, _ in rows for name in names.split(", ")) == sorted(commands)
    for words in _MEANT.values():
        for word in words:
            place = commands
            for part in word.partition("--")[0].split():
                assert part in place, word
                place = getattr(place[part], "commands", {})
    for path in (["jobs"], ["queues", "pause"], ["queues"]):
        assert run([*path, "-h"]) == 0, path
        assert "Usage: rota" in capsys.readouterr().out


@rule("M3")
def test_an_unknown_word_or_a_misplaced_option_is_answered_with_what_may_be_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, answer in (
        ("pause email", "did you mean `rota queues pause` or `rota schedules pause`?"),
        ("dead", "did you mean `rota jobs --status dead`?"),
        ("--app a:b work", "as in `rota work --app shop:app`; see rota --help"),
        ("work -A a:b", "did you mean --app?; see rota work --help"),
        ("enqueue a --countdown 5", "mean --delay?; see rota enqueue --help"),
        ("jbos", "did you mean `rota jobs`?"),
        ("queues list", "did you mean `rota queues`?"),
        ("schedules nightly", "did you mean `rota schedules show nightly`?"),
        ("breakers trap smtp", "did you mean `rota breakers trip`?"),
        (
            "queues --url postgresql://staging pause email",
            "--url goes after the verb: rota queues pause … --url",
        ),
    ):
        assert run(words.split()) == 2, words
        assert capsys.readouterr().err.rstrip("\n").endswith(answer), words
