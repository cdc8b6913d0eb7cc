"""A person reads the flag that was typed, not the parameter of Python's."""

from __future__ import annotations

from pathlib import Path

from tests.cli.here import Here
from tests.support.rules import rule

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
