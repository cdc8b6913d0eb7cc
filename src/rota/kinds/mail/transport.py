"""Sends a mail by SMTP, or into a folder. Any object with `send` and `aclose` will do."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import socket
import time
from email.generator import BytesGenerator
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit
from weakref import WeakKeyDictionary

import aiosmtplib

import rota

IDLE_S = 20.0
"""Seconds that an idle connection is kept: many servers close it after about a minute."""
KEPT_S = 10.0
"""Seconds for the first answer on a kept connection, before a new connection is opened. Also for
the greeting, some minutes after a server was silent: so failures come fast enough for a breaker."""
ANSWER_S, DATA_S, MESSAGE_S = 300.0, 120.0, 600.0
"""Seconds for an answer, for the answer to DATA, and to the message. Source: RFC 5321, 4.5.3.2."""
ATTEMPT_S = 3 * KEPT_S + 11 * ANSWER_S + 2 * DATA_S + MESSAGE_S
"""All steps in a row. On a kept connection that ends: MAIL, RCPT, DATA, QUIT. On a new connection:
connect, greeting, EHLO, STARTTLS, handshake, EHLO, two of AUTH, MAIL, RCPT, DATA, message, RSET."""
_RESPONSE_MAX = 200
"""Most characters of a server's answer that are kept."""
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BEGINS_WITH_DOT = re.compile(rb"^\.", re.MULTILINE)
_HOST = re.compile(r"([a-z\d]([a-z\d-]*[a-z\d])?\.)+[a-z][a-z\d-]*[a-z\d]|\[[\w.:]+\]", re.A | re.I)
"""What may stand in EHLO: a full host name, or an address in brackets. Source: RFC 5321, 4.1.2."""
_ADVICE = {
    "mismatch": "the URL must name the host as its certificate does",
    "CERTIFICATE_VERIFY_FAILED": "SSL_CERT_FILE can name a file of certificates to trust; "
    "smtp://…?starttls=never sends in clear",
    "WRONG_VERSION_NUMBER": "smtps:// is for a port with TLS from the start, smtp:// for STARTTLS",
    "STARTTLS extension not": "?starttls=never sends a password in clear",
    "Helo command rejected": "?hostname=worker.shop.example is what this machine calls itself",
}
"""Advice for an error, by a part of the error's text."""
_STATUS = re.compile(r"[45]\.(\d+\.\d+)\b")
_OF_MAIL = frozenset(f"7.{detail}" for detail in (1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 29, 30))
"""Statuses x.7 about one message or one recipient. All other x.7 are about the sender: login,
account, SPF, DKIM, reverse DNS, flood. Source: RFC 3463, 3.8, and IANA's list."""
_OF_SENDER = frozenset({"1.7", "1.8"})
"""Statuses about the sender's address or domain: answers to MAIL, or to RCPT, as Postfix does."""
_SENDER_SAID = re.compile(
    r"(?<!\S)(helo|ehlo|client host|sender address|sender verify)\b(?!@)", re.IGNORECASE
)
"""The same in words, as Postfix and Exim write with other statuses, or with none."""
_SESSION = frozenset({500, 502, 504, 521, 555, "5.1", "5.2", "5.4"})
"""Refusals of a command or a host; in answer to a message, of a line that is too long. Source: RFC
5321, 4.2; RFC 7504; RFC 3463, 3.6."""
_LOGIN = frozenset({432, 454, 503, 530, 534, 535, 538})
"""Login or TLS is missing or refused; 503: another command must come first. Source: RFC 4954, 6."""


class NotSent(Exception):
    """The server did not take the mail, which proves that nothing was sent. Worth another
    attempt."""

    rota_rule = "the mail server does not take it now"


class MailRefused(NotSent):
    """The server will never take this mail for this recipient: the job is dead."""


class ServerUnavailable(NotSent, ConnectionError):
    """No server answers, or the connection broke before the server had the mail. Worth another
    attempt, and the breaker counts it."""

    rota_rule = "the mail server is unavailable"


class AccountRefused(NotSent, ConnectionError):
    """The server refuses the sender, not this mail: a wrong password, a blocked account. Worth
    another attempt, and the breaker counts it."""

    rota_rule = "the mail server refuses the account"


class Transport(Protocol):
    """Sends one message. A provider with an HTTP API needs these few lines."""

    async def send(self, message: EmailMessage, sender: str, to: str) -> str:
        """Send the message; return the provider's answer, such as its id for the message.

        Raises:
                    NotSent: certainly not sent; its subclasses say why.
                    Exception: the message may have been sent.
        """

    async def aclose(self) -> None:
        """Close what is open on the running loop."""


class SMTP:
    """An SMTP server. An idle connection is kept for the next mail."""

    def __init__(self, url: str) -> None:
        """Args:
        url: `smtp://user:password@host:587`, `smtps://…` (TLS from the start, port 465),
            `smtp://…?starttls=always` or `never`. Without a choice STARTTLS is used where the
            server offers it, and must be offered where a password goes to another machine.
            `?hostname=worker.shop.example` is what this machine calls itself in EHLO. Defaults to
            its full host name, or to its address if it has none.
        """
        try:
            parts = urlsplit(url)
            is_one = parts.scheme in ("smtp", "smtps") and parts.hostname and parts.port != 0
            is_one = is_one and parts.path in ("", "/") and not parts.fragment
        except ValueError:
            is_one = False
        if not is_one:  # without a word of it: it has a password
            raise rota.UsageError(
                "the URL of a mail server looks like smtp://user:password@host:587 or "
                "smtps://host; in user and password write / as %2F, @ as %40, : as %3A, ? as %3F, "
                "# as %23 and % as %25"
            )
        needs_tls = parts.username is not None and not _is_loopback(parts.hostname or "")
        choices = {"": needs_tls or None, "always": True, "never": False}
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        starttls, hostname = options.pop("starttls", ""), options.pop("hostname", None)
        is_host = hostname is None or _HOST.fullmatch(hostname)
        if options or starttls not in choices or not is_host:
            raise rota.UsageError(
                "of a mail server's URL the options are starttls=always or =never, and "
                "hostname=worker.shop.example or =[10.0.0.7]"
            )
        self._host = parts.hostname
        self._tls = parts.scheme == "smtps"
        self._port = parts.port or (465 if self._tls else 587)
        self._starttls = False if self._tls else choices[starttls]
        self._hostname = hostname
        self._user = unquote(parts.username) if parts.username else None
        self._password = unquote(parts.password or "") if self._user else None
        self._silent_at: float | None = None
        self._idle: WeakKeyDictionary[
            asyncio.AbstractEventLoop, list[tuple[aiosmtplib.SMTP, float]]
        ] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<SMTP {self._host}:{self._port}>"

    async def send(self, message: EmailMessage, sender: str, to: str) -> str:
        """Send the message. Until the message itself begins, every failure proves that nothing was
        sent, also a cancellation; afterwards only the server's answer tells.

        A kept connection may end without a fault of anybody: what the server refuses there is tried
        once more on a new connection, at once.
        """
        try:
            client, content = await self._start(self._take(), message, sender, to)
        except asyncio.CancelledError as error:
            raise error from NotSent("cancelled before the server had the mail")
        return await self._finish(client, content)

    async def aclose(self) -> None:
        """Close the connections that are kept on the running loop."""
        for client, _ in self._idle.pop(asyncio.get_running_loop(), []):
            await _quit(client)

    async def _start(
        self, kept: aiosmtplib.SMTP | None, *mail: Any
    ) -> tuple[aiosmtplib.SMTP, bytes]:
        client = kept or await self._connect()
        try:
            return client, await self._begin(client, KEPT_S if kept else ANSWER_S, *mail)
        except NotSent as error:
            # A refusal of an address or mailbox (RFC 3463, 3.2 and 3.3) holds on any connection.
            if kept is None or _read_status(error.__cause__).startswith(("1.", "2.")):
                await self._reset(client, error)
                raise
        await _quit(client)
        return await self._start(None, *mail)

    async def _begin(
        self, client: aiosmtplib.SMTP, first_s: float, message: EmailMessage, sender: str, to: str
    ) -> bytes:
        """Send MAIL, RCPT and DATA; return the message in the form this server takes. Raises
        NotSent."""
        policy: Any = message.policy
        is_utf8 = policy.utf8 or not (sender.isascii() and to.isascii())
        is_8bit = client.supports_extension("8bitmime")
        encoding: Literal["utf-8", "ascii"] = "utf-8" if is_utf8 else "ascii"
        options = ["BODY=8BITMIME"] * is_8bit + ["SMTPUTF8"] * is_utf8
        verb = ""
        try:
            if is_utf8 and not client.supports_extension("smtputf8"):
                raise aiosmtplib.SMTPNotSupported("it takes no international addresses (SMTPUTF8)")
            policy = policy.clone(utf8=is_utf8, cte_type="8bit" if is_8bit else "7bit")
            flat = io.BytesIO()
            BytesGenerator(flat, policy=policy).flatten(message)
            content = _LINE_END.sub(b"\r\n", flat.getvalue()).removesuffix(b"\r\n") + b"\r\n"
            if client.supports_extension("size"):
                options.append(f"SIZE={len(content)}")
            # The first digit of an answer decides. Source: RFC 5321, 4.2.
            for verb, words, wait_s, digit in (
                ("MAIL", [f"FROM:<{sender}>", *options], first_s, 2),
                ("RCPT", [f"TO:<{to}>"], ANSWER_S, 2),
                ("DATA", [], DATA_S, 3),
            ):
                line = " ".join([verb, *words]).encode(encoding)
                answer = await client.execute_command(line, timeout=wait_s)
                if answer.code // 100 != digit:
                    raise aiosmtplib.SMTPResponseException(answer.code, answer.message)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise self._explain(error, verb) from error
        except BaseException:
            client.close()
            raise
        return content

    async def _finish(self, client: aiosmtplib.SMTP, content: bytes) -> str:
        """Send the message; return the answer. Raises NotSent, or an error that leaves it
        uncertain."""
        protocol = client.protocol
        if protocol is None or not protocol.is_connected:
            raise ServerUnavailable(f"{self._host}: it ended the connection before the message")
        try:
            protocol.write(_BEGINS_WITH_DOT.sub(b"..", content) + b".\r\n")
            answer = await protocol.read_response(timeout=MESSAGE_S)
        except BaseException:
            client.close()
            raise
        error = aiosmtplib.SMTPDataError(answer.code, answer.message)
        if answer.code // 100 in (4, 5):
            why = self._explain(error, ".")
            await self._reset(client, why)
            raise why from error
        if answer.code // 100 != 2:  # no answer to a message
            client.close()
            raise error
        self._keep(client)
        return f"{answer.code} {answer.message}"[:_RESPONSE_MAX]

    async def _connect(self) -> aiosmtplib.SMTP:
        client = aiosmtplib.SMTP(
            hostname=self._host,
            port=self._port,
            timeout=ANSWER_S,
            use_tls=self._tls,
            start_tls=self._starttls,
            local_hostname=self._hostname or await asyncio.to_thread(_name_host),
            username=self._user,
            password=self._password,
        )
        at = self._silent_at
        was_silent = at is not None and time.monotonic() - at < ANSWER_S
        try:
            await client.connect(timeout=KEPT_S if was_silent else ANSWER_S)
            if client.is_ehlo_or_helo_needed:  # after STARTTLS, or with neither that nor a login
                await _greet(client)
        except asyncio.CancelledError:
            client.close()
            raise
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            client.close()
            if isinstance(error, aiosmtplib.SMTPConnectTimeoutError) and not was_silent:
                self._silent_at = time.monotonic()
            # Whatever the server says here, it says to every sender.
            text = f"{self._host}:{self._port}: {_tell(error)}"
            is_account = isinstance(error, aiosmtplib.SMTPResponseException) and (
                error.code >= 500 or error.code == 432  # a new password is needed
            )
            raise (AccountRefused if is_account else ServerUnavailable)(text) from error
        return client

    def _take(self) -> aiosmtplib.SMTP | None:
        kept = self._idle.get(asyncio.get_running_loop(), [])
        while kept:
            client, since = kept.pop()
            if time.monotonic() - since < IDLE_S and client.is_connected:
                return client
            client.close()
        return None

    def _keep(self, client: aiosmtplib.SMTP) -> None:
        if client.is_connected:
            kept = self._idle.setdefault(asyncio.get_running_loop(), [])
            kept.append((client, time.monotonic()))

    async def _reset(self, client: aiosmtplib.SMTP, why: NotSent) -> None:
        """Keep a connection on which a mail was refused, if the server goes on to answer."""
        if isinstance(why, ServerUnavailable):  # a late answer would be taken for the next one
            client.close()
            return
        try:
            await client.rset(timeout=KEPT_S)
        except (aiosmtplib.SMTPException, OSError):
            client.close()
        except BaseException:
            client.close()
            raise
        self._keep(client)

    def _explain(self, error: Exception, verb: str) -> NotSent:
        text = f"{self._host}: {_tell(error)}"
        if isinstance(error, aiosmtplib.SMTPNotSupported | ValueError):
            return MailRefused(text)
        if not isinstance(error, aiosmtplib.SMTPResponseException) or error.code == 421:
            return ServerUnavailable(text)  # the connection broke, or ends
        return _blame(error, verb)(text)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _blame(error: aiosmtplib.SMTPResponseException, verb: str) -> type[NotSent]:
    """Tell from the code and the status (RFC 3463) of a refused verb whether the refusal is about
    the sender, and so about all mails, or about this mail. The verb `.` is the message."""
    status = _read_status(error)
    is_of_sender, is_of_recipient = verb == "MAIL", verb == "RCPT"
    is_greylisted = is_of_recipient and error.code < 500 and status == "7.0"
    is_relay = is_of_recipient and not status and "relay" in error.message.lower()  # as Exim says
    is_rule = not is_of_sender and (status in _OF_MAIL or is_greylisted or is_relay)
    if (
        error.code in _LOGIN
        or status in _OF_SENDER
        or _SENDER_SAID.search(error.message)
        or (verb != "." and {error.code, status} & _SESSION)
        or (status.startswith("7.") and not is_rule)
        or (is_of_sender and error.code >= 500 and error.code != 552)  # too large
    ):
        return AccountRefused
    # Most often a rule of this recipient; but some servers say the same to an account that may not
    # relay, so the refusal is not for good.
    return NotSent if error.code < 500 or (is_of_recipient and is_rule) else MailRefused


def _read_status(error: BaseException | None) -> str:
    """Return subject and detail of a status, such as `7.1`; empty: the error has no status."""
    found = _STATUS.match(getattr(error, "message", ""))
    return found[1] if found else ""


def _name_host() -> str:
    """Return this machine's name in EHLO: its full host name, or an address of it."""
    try:
        name = socket.getfqdn()
        is_whole = _HOST.fullmatch(name)
        return name if is_whole else f"[{socket.gethostbyname(socket.gethostname())}]"
    except (OSError, ValueError):
        return "[127.0.0.1]"


async def _quit(client: aiosmtplib.SMTP) -> None:
    try:
        with contextlib.suppress(aiosmtplib.SMTPException):
            await client.quit(timeout=1)
    finally:
        client.close()


async def _greet(client: aiosmtplib.SMTP) -> None:
    try:
        await client.ehlo()
    except aiosmtplib.SMTPHeloError:
        await client.helo()


def _tell(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, aiosmtplib.SMTPResponseException):
        text = f"{error.code} {error.message}"
    advice = (f"; {what}" for part, what in _ADVICE.items() if part in str(error))
    return text[:_RESPONSE_MAX] + next(advice, "")


class Folder:
    """Writes each mail as a file `.eml` instead of sending it: for development."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    async def send(self, message: EmailMessage, sender: str, to: str) -> str:
        """Write the message; return the path of the file."""
        name = str(message["Message-ID"]).strip("<>").partition("@")[0]
        path = self._folder / f"{name}.eml"
        self._folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(path.write_bytes, bytes(message))
        return str(path)

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
