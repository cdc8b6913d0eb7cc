"""What mail servers do, each a row of a table, and what becomes of the mails."""

from __future__ import annotations

import asyncio
import re
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.kinds import mail
from rota.model.effect import proves_not_done
from tests.support.rules import rule
from tests.support.smtp import DROP, HANG, speaking


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "subject.txt").write_text("Grüße {{ name }}")
    (tmp_path / "w" / "text.txt").write_text("Grüße\n.a line with a dot\n")
    return tmp_path


EIGHT = ["8BITMIME", "SIZE 1000000"]
MANY = "421 4.7.0 too many messages in this connection"
ENDS = [(f"{verb} 3", how) for verb in ("MAIL", "RCPT", "DATA") for how in (MANY, DROP)]


NOT_NOW = "the mail server does not take it now"
ACCOUNT = "the mail server refuses the account"
AWAY = "the mail server is unavailable"


@rule("M70", "M71")
@pytest.mark.parametrize(
    ("says", "failed", "dead", "why"),
    [
        # A limit of mails on one connection is nobody's fault.
        *[({at: how}, 0, 0, None) for at, how in ENDS],
        ({"EHLO": "502 5.5.1 no"}, 0, 0, None),
        ({"1:hello": "554 5.3.2 busy"}, 1, 0, ACCOUNT),
        ({"1:MAIL": DROP}, 1, 0, AWAY),
        ({"1:RCPT": MANY}, 1, 0, AWAY),
        ({"RCPT": "450 4.2.0 greylisted"}, 5, 0, NOT_NOW),
        ({"RCPT 2": "550 5.1.1 unknown"}, 0, 1, None),
        ({"RCPT 2": "550 5.7.1 relaying denied"}, 1, 0, NOT_NOW),
        ({"RCPT 2": "450 4.7.0 greylisted"}, 1, 0, NOT_NOW),
        ({"RCPT 2": "550 5.7.0 blocked"}, 1, 0, ACCOUNT),
        # A refusal of MAIL on a kept connection may be of that: it is asked again on a new one.
        ({"MAIL 2": "503 5.5.1 too many messages"}, 0, 0, None),
        ({"MAIL": "550 5.7.1 not as this sender"}, 5, 0, ACCOUNT),
        ({"MAIL": "530 Must issue a STARTTLS command first"}, 5, 0, ACCOUNT),
        ({"MAIL": "552 5.3.4 too large"}, 0, 5, None),
        ({"DATA 2": "554 5.6.0 no"}, 0, 1, None),
        ({". 2": "554 5.7.1 looks like spam"}, 0, 1, None),
        ({". 2": "550 5.7.8 blocked"}, 1, 0, ACCOUNT),
        ({". 2": "451 4.3.0 try later"}, 1, 0, NOT_NOW),
        ({". 2": MANY}, 2, 0, AWAY),
        # Uncertain is what can have been sent.
        ({"1:.": DROP}, 1, 0, None),
    ],
    ids=str,
)
def test_what_a_server_does_is_the_mails_the_accounts_or_nobodys(
    says: dict[str, str], failed: int, dead: int, why: str | None, database: str, templates: Path
) -> None:
    with speaking(says, EIGHT) as server:
        mailer = mail.Mailer(server.url, sender="a@shop.example", templates=templates)
        app = rota.App(database, jobs=[mailer.jobs])
        people = [mail.Recipient(f"u{n}@x.example", n, {"name": ""}) for n in range(5)]
        mailer.send_many("w", people, event="e")
        done = app.drain(concurrency=1)
        assert (done.failed, done.dead, done.succeeded) == (failed, dead, 5 - failed - dead)
        assert len(server.messages) == done.succeeded
        rules = {str(one.verdict_rule) for one in app.find(status="failed")}
        assert why is None or (len(rules) == 1 and rules.pop().startswith(why))
        uncertain = app.effects.find()
        assert [one.status for one in uncertain] == ["uncertain"] * (failed if why is None else 0)
        app.close()


IDN = "ada@bücher.example"


@rule("M70")
@pytest.mark.parametrize(
    ("offers", "to", "said", "is_8bit"),
    [
        ([], "ada@x.example", "MAIL FROM:<a@shop.example>", False),
        (["8BITMIME"], "ada@x.example", "MAIL FROM:<a@shop.example> BODY=8BITMIME", True),
        # Only what stands before the @ needs SMTPUTF8.
        ([], IDN, "RCPT TO:<ada@xn--bcher-kva.example>", False),
        ([], "ada@xn--bcher-kva.example", "RCPT TO:<ada@xn--bcher-kva.example>", False),
        (["SMTPUTF8", "8BITMIME"], IDN, "RCPT TO:<ada@xn--bcher-kva.example>", True),
        (["SMTPUTF8", "8BITMIME"], "jörg@x.example", "RCPT TO:<jörg@x.example>", True),
    ],
)
def test_a_server_gets_what_it_offers(
    offers: list[str], to: str, said: str, is_8bit: bool, database: str, templates: Path
) -> None:
    with speaking({}, [*offers, "SIZE 9999"]) as server:
        given: Any = {"sender": "Shop <a@shop.example>", "templates": templates}
        mailer = mail.Mailer(server.url, **given)
        app = rota.App(database, jobs=[mailer.jobs])
        mailer.send("w", to=to, user_id=1, event="e", data={"name": "\u2028"})
        assert app.drain().succeeded == 1
        assert said in [re.sub(r" SIZE=\d+", "", line) for line in server.heard]
        [size] = [int(one) for line in server.heard for one in re.findall(r"SIZE=(\d+)", line)]
        [raw] = server.messages
        assert size == len(raw.replace(b"\r\n..", b"\r\n."))
        assert (max(raw) > 127) == is_8bit
        message = message_from_bytes(raw, policy=policy.SMTPUTF8)
        assert message["Subject"] == "Grüße"
        assert message.get_content().startswith("Grüße")
        assert mailer.find(to)[0].status == "sent"
        app.close()


@rule("M70")
def test_bounces_and_answers_go_where_the_mailer_and_the_mail_say(
    database: str, templates: Path
) -> None:
    with speaking({}) as server:
        mailer = mail.Mailer(
            server.url,
            sender="Shop <a@shop.example>",
            envelope_sender="bounces@shop.example",
            reply_to="help@shop.example",
            templates=templates,
        )
        app = rota.App(database, jobs=[mailer.jobs])
        asked: Any = {"to": "b@x.example", "event": "e", "data": {"name": ""}}
        mailer.send("w", user_id=1, **asked)
        long = f"https://shop.example/u/{'t' * 300}"
        ann = "Ann <ann@shop.example>"
        mailer.send("w", user_id=2, reply_to=ann, unsubscribe=long, **asked)
        for wrong in ("a@x.example, b@x.example", "x\r\nBcc: y <b@x.example>", 5):
            with pytest.raises(rota.UsageError, match="is not one address"):
                mailer.send("w", user_id=3, reply_to=wrong, **asked)  # type: ignore[arg-type]
        with pytest.raises(rota.UsageError, match="is no mail address"):
            mailer.send("w", user_id=3, reply_to="nobody", **asked)
        app.drain(concurrency=1)
        messages = [message_from_bytes(one, policy=policy.default) for one in server.messages]
        assert [one["Reply-To"] for one in messages] == [
            "help@shop.example",
            "Ann <ann@shop.example>",
        ]
        assert f"List-Unsubscribe: <{long}>\r\n".encode() in server.messages[1]
        assert [one["From"] for one in messages] == ["Shop <a@shop.example>"] * 2
        assert {line for line in server.heard if "MAIL" in line} == {
            "MAIL FROM:<bounces@shop.example>"
        }
        app.close()


@rule("M52", "M70")
@pytest.mark.parametrize("at", ["hello", "MAIL", "DATA", "."])
async def test_a_cancelled_mail_is_uncertain_only_once_its_message_was_sent(at: str) -> None:
    message = EmailMessage()
    message.set_content("text")
    with speaking({at: HANG}) as server:
        sending = asyncio.create_task(
            mail.SMTP(server.url).send(message, "a@x.example", "b@x.example")
        )
        await asyncio.to_thread(server.hung.wait)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert proves_not_done(cancelled.value, (mail.NotSent,)) == (at != ".")
