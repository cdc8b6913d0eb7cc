"""The server that mails are sent to: it is outside of the database, and what it received stays."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from rota.kinds.mail.outbox import serving
from tests.support.post import Post

SLOW_S = 0.5
"""Longest time before and after it takes a mail: then much harm comes within an effect."""


class Sink(Post):
    """Takes mails. It is slow, refuses some, and at times closes the connection in place of an
    answer, before or after it took the mail."""

    def __init__(self, seed: int) -> None:
        super().__init__(rcpt=self._answer_rcpt, data=self._answer_data)
        self._chance = random.Random(f"sink {seed}")
        self.received: list[tuple[str, float]] = []
        """The Message-ID of each mail, and when it was taken, in seconds since 1970."""

    async def handle_DATA(  # noqa: N802
        self, server: Any, session: Any, envelope: Any
    ) -> str:
        """Take a mail, as aiosmtpd calls it."""
        await asyncio.sleep(self._chance.uniform(0, SLOW_S))
        answer = await super().handle_DATA(server, session, envelope)
        self.received += [(str(mail["Message-ID"]), time.time()) for mail in self.taken]
        self.taken.clear()  # aiosmtpd asks for all members of this, `addresses` too, per connection
        await asyncio.sleep(self._chance.uniform(0, SLOW_S))
        return answer

    def save(self, connection: psycopg.Connection) -> None:
        """Write down what it received."""
        with connection.cursor() as cursor:
            cursor.executemany(
                "insert into chaos.mail (message_id, at_s) values (%s, %s)", self.received
            )
        self.received.clear()

    def _answer_rcpt(self, address: str, n: int) -> str | None:
        match self._chance.randrange(40):
            case 0 | 1:
                return "450 4.2.0 greylisted"
            case 2:
                return "550 5.1.1 no such user"
        return None

    def _answer_data(self, address: str, n: int) -> str | None:
        match self._chance.randrange(40):
            case 0:
                return "drop"
            case 1:
                return "cut"
            case 2:
                return "451 4.3.0 try again"
        return None


@contextmanager
def receive(seed: int) -> Iterator[Sink]:
    """Take mails for a block."""
    sink = Sink(seed)
    with serving(sink) as sink.port:
        sink.url = f"smtp://127.0.0.1:{sink.port}?starttls=never"
        yield sink
