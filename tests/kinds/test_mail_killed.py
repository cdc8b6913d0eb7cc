"""Workers that are killed right after they sent: no mail is sent twice or lost in silence."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.kinds import mail
from tests.support.post import posting
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.table import expire_leases

MAILS = 300


@rule("M70", "M52", "M30")
@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.system
@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.long)])
def test_of_workers_that_are_killed_after_sending_each_mail_is_sent_once_or_uncertain(
    database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path, kills: int
) -> None:
    (tmp_path / "welcome").mkdir()
    (tmp_path / "welcome" / "subject.txt").write_text("Welcome")
    (tmp_path / "welcome" / "text.txt").write_text("Hello")
    chance = random.Random(kills)
    with posting() as post:
        mailer = mail.Mailer(post.url, sender="hello@shop.example", templates=tmp_path)
        app = rota.App(database, jobs=[mailer.jobs])
        people = [mail.Recipient(f"u{n}@x.example", n) for n in range(MAILS)]
        mailer.send_many("welcome", people, event="signup")
        environment = {
            **os.environ,
            "ROTA_DATABASE_URL": database,
            "MAIL_URL": post.url,
            "MAIL_TEMPLATES": str(tmp_path),
        }
        command = [sys.executable, "-m", "rota", "work", "--app", "tests.kinds.mail_app:app"]
        for _ in range(kills):
            before = len(post.taken)
            expire_leases(connection)
            with subprocess.Popen([*command, "--concurrency", "4"], env=environment) as worker:
                more = chance.randrange(1, 4)
                eventually(lambda: len(post.taken) >= before + more, 60)  # noqa: B023
                worker.kill()
        expire_leases(connection)
        app.drain()
        expire_leases(connection)
        app.drain()
        sent = Counter(post.addresses)
        assert max(sent.values()) == 1, "no mail is sent twice"
        uncertain = {one.about["to"] for one in app.effects.find(status="uncertain", limit=1_000)}
        assert sent.keys() | uncertain == {one.to for one in people}, "none is lost in silence"
        assert len(uncertain) <= 4 * kills
        app.close()
