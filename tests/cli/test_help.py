"""`rota` shows every command in its group, answers an unknown word, and names the flag that was
typed, not the parameter of Python's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from rota.cli import make_cli, run
from rota.cli.grammar import _MEANT
from tests.cli.here import Here
from tests.support.rules import rule


@rule("M3")
def test_every_command_stands_in_a_group_and_has_a_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 2
    page = capsys.readouterr().out
    rows = re.findall(r"^  (\S.*?)  +(\S.*)$", page, re.MULTILINE)
    commands = typer.main.get_command(make_cli()).commands  # type: ignore[attr-defined]
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
        ("enqueue a n=1 m=x", """ --payload '{"n": 1, "m": "x"}'; see rota enqueue --help"""),
        ("""enqueue a {"n":1}""", """ --payload '{"n":1}'; see rota enqueue --help"""),
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


URL = ("--url", "postgresql://postgres@127.0.0.1:1/x", "--schema", "rota")
PUT = ("schedules", "put", "s", "send_mail", "--payload", '{"user_id": 1}')
SEND = ("enqueue", "send_mail", "--payload", '{"user_id": 1}')
AT = "2031-01-01T00:00Z"


@rule("M3")
def test_an_error_names_the_flag(shop: Path, database: str) -> None:
    rota = Here(shop, ROTA_DATABASE_URL=database)
    for arguments, said in (
        ((*SEND, "--max-attempts", "0"), "--max-attempts must be a whole number from 1 to 10,000"),
        ((*SEND, "--expires", "soon"), "--expires must be"),
        ((*SEND, "--run-at", "tomorrow"), "--run-at must be a date and time"),
        ((*SEND, "--on-duplicate", "eat"), "--on-duplicate must be"),
        ((*SEND, "--key", "\n"), "--key must be"),
        ((*SEND, "--delay", "1h", "--run-at", AT), "give --run-at or --delay, not both"),
        ((*PUT, "--jitter", "2d"), "--jitter must be at most 1 d"),
        ((*PUT, "--catch-up", "some"), "--catch-up must be"),
        (("migrate", "--keep-effects", "1s"), "--keep-effects must be at least 1 d"),
        (("jobs", "--error-type", "", *URL), "--error-type must be"),
        (("jobs", "--since", "-2h", *URL), "--since must"),
        (("queues", "pause", "email", "--for", "soon", *URL), "--for must be"),
        (("breakers", "trip", "b", "--for", "1h", "--until", AT), "give --for or --until, not"),
        (("work", "--grace", "soon"), "--grace must be"),
        (("work", "--drain", "--for", "soon"), "--for must be"),
        (("archive", "1", *URL), "--why"),
        (("cancel", *URL), "give ids, or at least one of --status, --type, --queue, --key, --gr"),
        (("retry", "--again", "--status", "succeeded", "--why", "w", *URL), "give --since to sel"),
        (("cancel", "--status", "dead", *URL), "--status must be one of queued, waiting,"),
    ):
        status, sentence = rota(*arguments).error
        assert status == 2 and said in sentence, arguments
        for word in ("max_attempts", "run_at", "on_duplicate", "idempotency_key", "catch_up"):
            assert word not in sentence, arguments
