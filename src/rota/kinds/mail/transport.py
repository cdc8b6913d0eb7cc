"""How a mail leaves: by SMTP, or into a folder. Anything with `send` and `aclose` will do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import aiosmtplib

import rota

IDLE_S = 20.0
"""How long a connection is kept for the next mail: many servers close it after a minute or so."""
_RESPONSE_MAX = 200
"""Characters of a server's answer that are kept."""
_RULES = ("5.7.1", "5.7.2")
"""At RCPT most often a rule of this recipient, which says nothing of the next one; but some servers
say so to an account that may not relay, so it is not for good either."""


class NotSent(Exception):
    """The server did not take the mail: it proves that nothing was sent. Worth another attempt."""

    rota_rule = "the mail server does not take it now"


class MailRefused(NotSent):
    """The server will never take this mail for this recipient: the job is dead."""


class ServerUnavailable(NotSent, ConnectionError):
    """No server answers, or it broke the connection before it had the mail. Worth another attempt,
    and the breaker counts it."""

    rota_rule = "the mail server is unavailable"


class AccountRefused(NotSent, ConnectionError):
    """The server refuses whoever sends, not this mail: a wrong password, a blocked account. Worth
    another attempt, and the breaker counts it."""

    rota_rule = "the mail server refuses the account"


class Transport(Protocol):
    """Sends one message. A provider with an HTTP API needs these few lines."""

    async def send(self, message: EmailMessage, sender: str, to: str) -> str:
        """Send it; return what the provider answered, such as its id for the message.

        Raises:
            NotSent: it was certainly not sent; its subclasses say why.
            Exception: it may have been sent.
        """

    async def aclose(self) -> None:
        """Close what is open on the running loop."""


class SMTP:
    """A server that is spoken to by SMTP. A connection that is free is kept for the next mail."""

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        """Args:
        url: `smtp://user:password@host:587`, `smtps://…` (TLS from the start, port 465),
            `smtp://…?starttls=always` or `never`. Without a choice STARTTLS is used where the
            server offers it, and must be offered where a password goes to another machine.
        timeout_s: for each answer of the server.
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
        starttls = {"": needs_tls or None, "starttls=always": True, "starttls=never": False}
        if parts.query not in starttls:
            raise rota.UsageError("of a mail server's URL the option is starttls=always or =never")
        self._host = parts.hostname
        self._tls = parts.scheme == "smtps"
        self._port = parts.port or (465 if self._tls else 587)
        self._starttls = False if self._tls else starttls[parts.query]
        self._user = unquote(parts.username) if parts.username else None
        self._password = unquote(parts.password or "") if self._user else None
        self._timeout_s = timeout_s
        self._idle: WeakKeyDictionary[
            asyncio.AbstractEventLoop, list[tuple[aiosmtplib.SMTP, float]]
        ] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<SMTP {self._host}:{self._port}>"

    async def send(self, message: EmailMessage, sender: str, to: str) -> str:
        """Send it. Until the server has the whole message, every failure proves that it was not
        sent; afterwards only its answer tells."""
        client = await self._take() or await self._connect()
        try:
            response = await self._send_on(client, message, sender, to)
        except NotSent as error:
            if isinstance(error.__cause__, aiosmtplib.SMTPResponseException):
                await self._give_back(client)  # it answered, so it can take the next one
            else:
                client.close()
            raise
        except BaseException:
            client.close()
            raise
        await self._give_back(client)
        return response

    async def aclose(self) -> None:
        """Close the connections that are kept on the running loop."""
        for client, _ in self._idle.pop(asyncio.get_running_loop(), []):
            with contextlib.suppress(aiosmtplib.SMTPException):
                await client.quit(timeout=1)
            client.close()

    async def _send_on(
        self, client: aiosmtplib.SMTP, message: EmailMessage, sender: str, to: str
    ) -> str:
        options = None
        if not (sender.isascii() and to.isascii()):
            if not client.supports_extension("smtputf8"):
                raise MailRefused(f"{self._host} takes no international addresses (SMTPUTF8)")
            options = ["SMTPUTF8", "BODY=8BITMIME"]
        encoding: Literal["utf-8", "ascii"] = "utf-8" if options else "ascii"
        try:
            await client.mail(sender, options=options, encoding=encoding)
            await client.rcpt(to, encoding=encoding)
        except (aiosmtplib.SMTPException, OSError) as error:
            raise self._explain(error) from error
        try:
            answer = await client.data(bytes(message))
        except aiosmtplib.SMTPResponseException as error:
            # The server has answered: it refuses the message, unless the connection ended.
            if error.code < 400:
                raise
            raise self._explain(error) from error
        return f"{answer.code} {answer.message}"[:_RESPONSE_MAX]

    async def _connect(self) -> aiosmtplib.SMTP:
        client = aiosmtplib.SMTP(
            hostname=self._host,
            port=self._port,
            timeout=self._timeout_s,
            use_tls=self._tls,
            start_tls=self._starttls,
            username=self._user,
            password=self._password,
        )
        try:
            await client.connect()
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            client.close()
            # Whatever it says here, it says to everybody who sends.
            text = f"{self._host}:{self._port}: {_tell(error)}"
            if self._starttls and "starttls" in text.lower():
                text += "; ?starttls=never sends a password in clear"
            raise (AccountRefused if _has_refused(error) else ServerUnavailable)(text) from error
        return client

    async def _take(self) -> aiosmtplib.SMTP | None:
        """Return a kept connection that still answers; None: there is none."""
        kept = self._idle.get(asyncio.get_running_loop(), [])
        while kept:
            client, since = kept.pop()
            if time.monotonic() - since < IDLE_S and client.is_connected:
                try:
                    await client.rset()
                except (aiosmtplib.SMTPException, OSError):
                    client.close()
                    continue
                return client
            client.close()
        return None

    async def _give_back(self, client: aiosmtplib.SMTP) -> None:
        if client.is_connected:
            kept = self._idle.setdefault(asyncio.get_running_loop(), [])
            kept.append((client, time.monotonic()))

    def _explain(self, error: Exception) -> NotSent:
        text = f"{self._host}: {_tell(error)}"
        if not isinstance(error, aiosmtplib.SMTPResponseException):
            return ServerUnavailable(text)  # the connection broke, before there was a message
        said = (error.message.split() or [""])[0]
        is_of_one = isinstance(error, aiosmtplib.SMTPRecipientRefused) and said in _RULES
        if not _has_refused(error):
            return ServerUnavailable(text)
        if said.startswith(("5.7.", "4.7.0")) and not is_of_one:
            return AccountRefused(text)
        return MailRefused(text) if error.code >= 500 and not is_of_one else NotSent(text)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_refused(error: Exception) -> bool:
    """Whether the server has answered, and goes on to answer: with 421 it closes."""
    return isinstance(error, aiosmtplib.SMTPResponseException) and error.code != 421


def _tell(error: Exception) -> str:
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return f"{error.code} {error.message}"[:_RESPONSE_MAX]
    return f"{type(error).__name__}: {error}"[:_RESPONSE_MAX]


class Folder:
    """Writes each mail as a file `.eml` instead of sending it, for development: mail programs open
    them."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    async def send(self, message: EmailMessage, sender: str, to: str) -> str:
        """Write it; return the path of the file."""
        name = str(message["Message-ID"]).strip("<>").partition("@")[0]
        path = self._folder / f"{name}.eml"
        self._folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(path.write_bytes, bytes(message))
        return str(path)

    async def aclose(self) -> None:
        """Nothing is open."""
