"""A person reads the flag that was typed, not the parameter of Python's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli import run
from rota.cli.flags import name_flags
from tests.support.project import enter
from tests.support.rules import rule

URL = ["--url", "postgresql://postgres@127.0.0.1:1/x", "--schema", "rota"]
PUT = ["schedules", "put", "s", "send_mail", "--payload", '{"user_id": 1}']
SEND = ["enqueue", "send_mail", "--payload", '{"user_id": 1}']


@rule("M3")
@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ([*SEND, "--max-attempts", "0"], "--max-attempts must be a whole number from 1 to 10,000"),
        ([*SEND, "--priority", "101"], "--priority must be a whole number from -100 to 100"),
        ([*SEND, "--timeout", "0s"], "--timeout must be at least"),
        ([*SEND, "--expires", "soon"], "--expires must be"),
        ([*SEND, "--run-at", "tomorrow"], "--run-at must be a date and time"),
        ([*SEND, "--on-duplicate", "eat"], "--on-duplicate must be"),
        ([*SEND, "--key", "\n"], "--key must be"),
        (
            [*SEND, "--delay", "1h", "--run-at", "2031-01-01T00:00Z"],
            "give --run-at or --delay, not both",
        ),
        ([*PUT, "--jitter", "2d"], "--jitter must be at most 1 d"),
        ([*PUT, "--catch-up", "some"], "--catch-up must be"),
        ([*PUT, "--timezone", ""], "there is no time zone ''"),
        (["migrate", "--keep-effects", "1s"], "--keep-effects must be at least 1 d"),
        (["jobs", "--error-type", "", *URL], "--error-type must be"),
        (["jobs", "--since", "-2h", *URL], "--since must"),
        (["queues", "pause", "email", "--until", "soon", *URL], "--until must be a time such as"),
        (["queues", "pause", "email", "--for", "soon", *URL], "--for must be"),
        (
            ["breakers", "trip", "b", "--for", "1h", "--until", "2031-01-01T08:00", *URL],
            "give --for or --until, not both",
        ),
        (["queues", "resume", "", *URL], "a queue's name must be"),
        (["queues", "pause", "", *URL], "a queue's name must be"),
        (["work", "--grace", "soon"], "--grace must be"),
        (["work", "--drain", "--for", "soon"], "--for must be"),
        (["breakers", "trip", "b", "--for", "10"], "--for must be"),
        (["archive", "1", *URL], "--why"),
        (
            ["cancel", *URL],
            "give ids, or at least one of --status, --type, --queue, --key, --group-key, "
            "--payload, --meta, --error-type, --error, --release and --since",
        ),
        (
            ["retry", "--again", "--status", "succeeded", "--why", "w", *URL],
            "give --since to select",
        ),
        (["cancel", "--status", "dead", *URL], "--status must be one of queued, waiting,"),
        (["retry", "--status", "waiting", *URL], "--status must be one of queued, running, failed"),
        (["retry", "--again", "--queue", "q", "--why", "w", *URL], "give --status, one of dead,"),
    ],
)
def test_an_error_names_the_flag(
    arguments: list[str],
    begins: str,
    shop: Path,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert begins in said.removeprefix("rota: ")
    for word in ("max_attempts", "run_at", "on_duplicate", "idempotency_key", "catch_up"):
        assert word not in said


def test_only_a_parameter_becomes_a_flag() -> None:
    flags = {"run_at": "--run-at", "key": "--key", "for_": "--for", "keep": "--keep"}
    for message, named in [
        ("run_at must lie before 9999", "--run-at must lie before 9999"),
        ("the job holds the key; key_run_at, 'run_at' and run_at() stay", None),
        ("give key or keep, not both", "give --key or --keep, not both"),
        (
            "key must be 1 to 255 printable characters, not 'key'",
            "--key must be 1 to 255 printable characters, not 'key'",
        ),
        ("no key is held", None),
    ]:
        assert name_flags(message, flags) == (named or message)
    assert name_flags('use run_at="now"', flags) == "use --run-at now"
