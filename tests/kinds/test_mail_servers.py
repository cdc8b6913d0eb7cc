"""What mail servers do, each a row of a table, and what becomes of the mails."""

from __future__ import annotations

import asyncio
import re
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiosmtplib
import pytest

import rota
from rota.kinds import mail
from rota.kinds.mail import transport
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
HOW = (MANY, DROP, "550 5.7.1 too many messages", "452 4.5.3 too many")
ENDS = [(f"{verb} 3", how) for verb in ("MAIL", "RCPT", "DATA") for how in HOW]
HELO = "504 5.5.2 <box>: Helo command rejected: need fully-qualified hostname"
NOT_NOW = "the mail server does not take it now"
ACCOUNT = "the mail server refuses the account"
AWAY = "the mail server is unavailable"


@rule("M70", "M71", "M63")
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
        ({"RCPT": "550 5.7.1 not from you"}, 5, 0, NOT_NOW),
        ({"RCPT 2": "550 5.1.1 unknown"}, 0, 1, None),
        ({"RCPT": HELO}, 5, 0, ACCOUNT),
        ({"MAIL": "550 5.7.1 not as this sender"}, 5, 0, ACCOUNT),
        ({"MAIL": "530 Must issue a STARTTLS command first"}, 5, 0, ACCOUNT),
        ({"MAIL": "552 5.3.4 too large"}, 0, 5, None),
        ({"1:DATA": "554 5.6.0 no"}, 0, 1, None),
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
        rules = {str(job.verdict_rule) for job in app.find(status="failed")}
        assert why is None or (len(rules) == 1 and rules.pop().startswith(why))
        [breaker] = app.breakers.list()
        counted = failed * (why != NOT_NOW)
        known = ("open", 0) if counted == 5 else ("closed", counted)
        assert (breaker.state, breaker.failures) == known
        assert {job.attempts for job in app.find()} == {1}
        uncertain = app.effects.find()
        assert [job.status for job in uncertain] == ["uncertain"] * (failed if why is None else 0)
        app.close()


MESSAGE = EmailMessage()
MESSAGE.set_content("text")
OF_MAIL, OF_RECIPIENT, OF_SENDER = mail.MailRefused, mail.NotSent, mail.AccountRefused
SENT = type(None)


@rule("M70", "M63")
@pytest.mark.parametrize(
    ("at", "answer", "kind"),
    [
        ("MAIL", "550 5.7.1 not as this sender", OF_SENDER),
        ("MAIL", "450 4.7.1 not as this sender", OF_SENDER),
        ("MAIL", "550 no", OF_SENDER),
        ("MAIL", "530 log in", OF_SENDER),
        ("MAIL", "552 5.3.4 too large", OF_MAIL),
        ("MAIL", "451 4.3.0 later", mail.NotSent),
        ("RCPT", "550 5.7.1 relaying denied", OF_RECIPIENT),
        ("RCPT", "550 relay not permitted", OF_RECIPIENT),
        ("RCPT", "550 no", OF_MAIL),
        ("RCPT", "550 5.7.17 has another owner", OF_RECIPIENT),
        ("RCPT", "450 4.7.0 greylisted", OF_RECIPIENT),
        ("RCPT", "451 4.7.1 greylisted", OF_RECIPIENT),
        ("RCPT", "454 4.7.1 relaying denied", OF_SENDER),
        ("RCPT", "503 log in before", OF_SENDER),
        ("RCPT", "553 5.1.8 the sender has no domain", OF_SENDER),
        ("RCPT", "553 5.1.2 the recipient has no domain", OF_MAIL),
        ("RCPT", "550 5.7.0 blocked", OF_SENDER),
        ("RCPT", "550 5.1.0 <a@x.example>: Sender address rejected: User unknown", OF_SENDER),
        ("RCPT", "550-Verification failed\r\n550 Sender verify failed", OF_SENDER),
        ("RCPT", "450 4.7.1 Client host rejected: cannot find your hostname", OF_SENDER),
        ("RCPT", "550 5.1.1 <helo@x.example>: Recipient address rejected", OF_MAIL),
        *[("RCPT", f"{code} no", OF_SENDER) for code in (500, 502, 504, 521, 555)],
        ("RCPT", "501 no", OF_MAIL),
        *[("DATA", f"501 5.5.{n} no", OF_SENDER) for n in (1, 2, 4)],
        ("DATA", "554 5.5.0 no", OF_MAIL),
        # Of an answer the first digit decides.
        *[(verb, "252 perhaps", SENT) for verb in ("MAIL", "RCPT", ".")],
        (".", "500 5.5.2 Line too long", OF_MAIL),
        ("RCPT", "450 4.7.25 no reverse DNS", OF_SENDER),
        *[(".", f"554 5.7.{n} no", OF_MAIL) for n in (*range(1, 8), 16, 19, 29, 30)],
        *[(".", f"550 5.7.{n} no", OF_SENDER) for n in (0, *range(8, 15), *range(20, 29), 708)],
        (".", "451 4.7.1 later", mail.NotSent),
        (".", "450 4.7.28 a flood", OF_SENDER),
        (".", "534-5.7.14 log in\r\n534 5.7.14 with a browser", OF_SENDER),
    ],
)
async def test_a_refusal_is_of_the_mail_or_of_whoever_sends(
    at: str, answer: str, kind: type[mail.NotSent | None]
) -> None:
    with speaking({at: answer}) as server:
        assert type(await fail(server.url)) is kind


async def fail(url: str, to: str = "b@x.example") -> mail.NotSent | None:
    """Send a mail; return why it is not sent; None: it was."""
    smtp = mail.SMTP(url)
    try:
        await smtp.send(MESSAGE, "a@x.example", to)
    except mail.NotSent as error:
        return error
    finally:
        await smtp.aclose()
    return None


TLS, LOGIN = ["STARTTLS"], ["AUTH PLAIN"]


@rule("M70", "M63")
@pytest.mark.parametrize(
    ("says", "methods", "kind"),
    [
        ({}, "PLAIN", SENT),
        ({}, "LOGIN", SENT),
        ({}, "CRAM-MD5", SENT),
        ({"AUTH 1": "535 5.7.8 not in this way"}, "CRAM-MD5 PLAIN", SENT),
        ({}, "XOAUTH2 GSSAPI", mail.ServerUnavailable),
        ({"AUTH": "535 5.7.8 wrong password"}, "PLAIN LOGIN CRAM-MD5", mail.AccountRefused),
        ({"AUTH": "530 5.7.0 first another login"}, "PLAIN", mail.AccountRefused),
        ({"AUTH": "432 4.7.12 choose a new password"}, "PLAIN", mail.AccountRefused),
        ({"AUTH": "454 4.7.0 try later"}, "PLAIN", mail.ServerUnavailable),
        ({"AUTH": "421 4.7.0 too many"}, "PLAIN LOGIN", mail.ServerUnavailable),
        ({"AUTH": DROP}, "LOGIN", mail.ServerUnavailable),
        ({"STARTTLS": "454 4.7.0 no TLS now"}, "PLAIN", mail.ServerUnavailable),
        ({"STARTTLS": "502 5.5.1 no TLS"}, "PLAIN", mail.AccountRefused),
        ({"STARTTLS": DROP}, "PLAIN", mail.ServerUnavailable),
    ],
)
async def test_a_login_goes_through_tls_and_what_is_refused_is_tried_again(
    says: dict[str, str],
    methods: str,
    kind: type[Exception],
    trusted: Path,
) -> None:
    with speaking(says, TLS, [f"AUTH {methods}"], trusted) as server:
        error = await fail(server.url.replace("//", "//shop:secret@"))
        assert type(error) is kind and "secret" not in str(error)
        assert [line.split()[0] for line in server.heard[:2]] == ["EHLO", "STARTTLS"]
        assert len(server.messages) == (error is None)


@rule("M70")
@pytest.mark.parametrize(
    ("name", "query", "said"),
    [
        ("worker.shop.example", "", "worker.shop.example"),
        ("shop_worker.example", "", "[10.0.0.7]"),
        ("box", "", "[10.0.0.7]"),
        ("box", "?starttls=never&hostname=a.shop.example", "a.shop.example"),
        ("box", "?hostname=[IPv6:::1]", "[IPv6:::1]"),
    ],
)
async def test_a_machine_says_its_whole_name_or_its_address(
    name: str, query: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: name)
    monkeypatch.setattr("socket.gethostbyname", lambda _: "10.0.0.7")
    with speaking({"RCPT": HELO}) as server:
        assert f"{HELO}; ?hostname=" in str(await fail(server.url + query))
        assert server.heard[0] == f"EHLO {said}"


@rule("M63", "M70")
async def test_after_a_silent_server_the_next_mails_soon_fail_and_open_the_breaker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    async def connect(_: aiosmtplib.SMTP, timeout: float) -> None:
        waited.append(timeout)
        now[0] += timeout
        raise aiosmtplib.SMTPConnectTimeoutError("no greeting")

    now = [1000.0]
    monkeypatch.setattr(aiosmtplib.SMTP, "connect", connect)
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: now[0]))
    smtp = mail.SMTP("smtp://mail.invalid")
    for _ in range(32):
        with pytest.raises(mail.ServerUnavailable):
            await smtp.send(MESSAGE, "a@x.example", "b@x.example")
    assert waited == [300, *[10] * 30, 300]


@rule("M70", "M45")
@pytest.mark.parametrize(
    ("at", "offers", "has_certificate", "why"),
    [
        ("127.0.0.1", TLS, True, "SSL_CERT_FILE can name a file of certificates"),
        ("127.0.0.1", TLS, False, ""),  # it ends the handshake, which has many words
        # It is served here, and is not loopback.
        ("0.0.0.0", LOGIN, False, "not supported by server.; ?starttls=never sends a password"),
        ("0.0.0.0?starttls=never", LOGIN, False, None),
        ("127.0.0.1", LOGIN, False, None),
    ],
)
async def test_a_password_goes_to_who_is_trusted_and_leaves_in_clear_only_if_told(
    at: str, offers: list[str], has_certificate: bool, why: str | None, certificate: Path
) -> None:
    host, _, query = at.partition("?")
    with speaking({}, offers, LOGIN, certificate if has_certificate else None) as server:
        error = await fail(f"smtp://shop:secret@{host}:{server.port}?{query}")
        assert why is None or (type(error) is mail.ServerUnavailable and why in str(error))
        assert any("AUTH" in line for line in server.heard) == (error is None) == (why is None)


WORLD = ["8BITMIME", "SMTPUTF8", "SIZE 9999"]


@rule("M70")
@pytest.mark.parametrize(
    ("offers", "in_tls", "query", "is_sent"),
    [
        (TLS, WORLD, "", True),
        ([*TLS, *WORLD], [], "", False),
        (WORLD, [], "?starttls=never", True),
    ],
)
async def test_what_a_server_offers_is_what_it_said_last(
    offers: list[str],
    in_tls: list[str],
    query: str,
    is_sent: bool,
    trusted: Path,
) -> None:
    with speaking({}, offers, in_tls, trusted) as server:
        error = await fail(server.url + query, "jörg@x.example")
        said = "MAIL FROM:<a@x.example> BODY=8BITMIME SMTPUTF8 SIZE="
        assert any(line.startswith(said) for line in server.heard) == (error is None) == is_sent
        assert is_sent or "takes no international addresses" in str(error)
        assert is_sent or type(error) is mail.MailRefused


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
        [size] = [int(text) for line in server.heard for text in re.findall(r"SIZE=(\d+)", line)]
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
        with pytest.raises(rota.UsageError, match="is not one address"):
            mail.Mailer(server.url, sender=ann, envelope_sender="", templates=templates)
        for wrong in ("a@x.example, b@x.example", "x\r\nBcc: y <b@x.example>", "a@x y.example", 5):
            with pytest.raises(rota.UsageError, match="is not one address"):
                mailer.send("w", user_id=3, reply_to=wrong, **asked)  # type: ignore[arg-type]
        with pytest.raises(rota.UsageError, match="is no mail address"):
            mailer.send("w", user_id=3, reply_to="nobody", **asked)
        app.drain(concurrency=1)
        messages = [message_from_bytes(text, policy=policy.default) for text in server.messages]
        assert [message["Reply-To"] for message in messages] == [
            "help@shop.example",
            "Ann <ann@shop.example>",
        ]
        assert f"List-Unsubscribe: <{long}>\r\n".encode() in server.messages[1]
        assert [message["From"] for message in messages] == ["Shop <a@shop.example>"] * 2
        assert {line for line in server.heard if "MAIL" in line} == {
            "MAIL FROM:<bounces@shop.example>"
        }
        app.close()


@rule("M52", "M70")
@pytest.mark.parametrize("at", ["hello", "MAIL", "DATA", "."])
async def test_a_cancelled_mail_is_uncertain_only_once_its_message_was_sent(at: str) -> None:
    with speaking({at: HANG}) as server:
        sending = asyncio.create_task(
            mail.SMTP(server.url).send(MESSAGE, "a@x.example", "b@x.example")
        )
        await asyncio.to_thread(server.hung.wait)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert proves_not_done(cancelled.value, (mail.NotSent,)) == (at != ".")
