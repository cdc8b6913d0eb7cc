"""A mail server on the loopback that answers as a test says, and keeps what it took."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from aiosmtpd.smtp import SMTP, Envelope, Session

from rota.kinds.mail.outbox import serving

Say = Callable[[str, int], str | None]
"""What the server answers to an address, of which it is asked for the n-th time; None: OK."""


@dataclass
class Post:
    """The server."""

    url: str = ""
    port: int = 0
    rcpt: Say | None = None
    data: Say | None = None
    """`drop`: it closes the connection instead of an answer, after it took the mail; `cut`: before
    it took it. `wait`: it never answers."""
    taken: list[EmailMessage] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    connections: int = 0

    @property
    def addresses(self) -> list[str]:
        """Whom the mails that it took are for, in order."""
        return [str(message["To"]) for message in self.taken]

    def _say(self, say: Say | None, verb: str, address: str) -> str | None:
        at = f"{verb} {address}"
        self.asked[at] = self.asked.get(at, 0) + 1
        return None if say is None else say(address, self.asked[at])

    # What aiosmtpd calls

    async def handle_EHLO(
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, answers: list[str]
    ) -> list[str]:
        self.connections += 1
        session.host_name = hostname
        return answers

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any
    ) -> str:
        refused = self._say(self.rcpt, "RCPT", address)
        if refused is None:
            envelope.rcpt_tos.append(address)
        return refused or "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        [address] = envelope.rcpt_tos
        answer = self._say(self.data, "DATA", address)
        if answer is None or answer == "drop":
            content = cast("bytes", envelope.original_content)
            self.taken.append(message_from_bytes(content, policy=policy.default))
        if answer in ("drop", "cut"):
            assert server.transport is not None
            server.transport.close()
        if answer == "wait":
            await asyncio.sleep(60)
        return answer or f"250 OK as {len(self.taken)}"


@contextmanager
def posting() -> Iterator[Post]:
    """Take mails for a block."""
    post = Post()
    with serving(post) as post.port:
        post.url = f"smtp://127.0.0.1:{post.port}"
        yield post
