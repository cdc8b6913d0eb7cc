"""What the shop does not own: a mail server, a CRM and a partner, in a process of their own.

They note what arrives in tables of the schema `outside`. `PUT /control` says how they behave.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
from aiosmtpd.smtp import SMTP
from psycopg_pool import ConnectionPool

from rota.kinds import webhook

TABLES = """
create schema outside;
create table outside.mail (message_id text, recipient text, subject text);
create table outside.call (how text, ms float);
create table outside.download (run bigint, lines int, sha256 text);
create table outside.request (
  receiver text, webhook_id text, event text, about int, status int, verified boolean
);
"""


class Behaviour:
    """How they behave just now."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, float]] = {}
        """Status and seconds of a receiver; by itself 204 at once."""
        self.fails_first: dict[str, int] = {}
        """How often a receiver answers 503 before it works."""
        self.refuses: list[int] = []
        """Whom the CRM answers 422."""
        self.secrets: dict[str, str] = {}
        self.holds: str | None = None
        """A recipient whose mail is taken, but whose sender waits for the answer."""
        self.held = threading.Event()

    def answer(self, receiver: str, about: int) -> int:
        status, seconds = self.answers.get(receiver, (204, 0.0))
        time.sleep(seconds)  # that is what a slow receiver does
        if self.fails_first.get(receiver, 0) > 0:
            self.fails_first[receiver] -= 1
            return 503
        if status == 204 and receiver == "crm" and about in self.refuses:
            return 422
        return status


class Mails:
    """The handler of the mail server."""

    def __init__(self, pool: Any, behaviour: Behaviour) -> None:
        self._pool, self._behaviour = pool, behaviour

    async def handle_DATA(  # noqa: N802  # as aiosmtpd calls it
        self, server: Any, session: Any, envelope: Any
    ) -> str:
        await asyncio.to_thread(self._note, envelope)
        if self._behaviour.holds in envelope.rcpt_tos:
            self._behaviour.held.set()
            await asyncio.Event().wait()  # its connection ends before
        return "250 OK"

    def _note(self, envelope: Any) -> None:
        message = message_from_bytes(envelope.content, policy=policy.default)
        with self._pool.connection() as connection:
            connection.execute(
                "insert into outside.mail (message_id, recipient, subject) values (%s, %s, %s)",
                [message["Message-ID"], envelope.rcpt_tos[0], message["Subject"]],
            )


def make_handler(pool: Any, behaviour: Behaviour) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver = self.path.strip("/")
            body = self.rfile.read(int(self.headers["Content-Length"]))
            event = json.loads(body)
            about = next(iter(event["data"].values()))
            status = behaviour.answer(receiver, about)
            with pool.connection() as connection:
                connection.execute(
                    "insert into outside.request values (%s, %s, %s, %s, %s, %s)",
                    [
                        receiver, self.headers["webhook-id"], event["type"], about, status,
                        self._is_signed(receiver, body),
                    ],
                )  # fmt: skip
            self._send(status, b"this contact has no country" if status == 422 else b"")

        def do_PUT(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for name, value in told.items():
                setattr(behaviour, name, value)
            self._send(204, b"")

        def do_GET(self) -> None:  # whether a mail is held
            self._send(204 if behaviour.held.is_set() else 404, b"")

        def _is_signed(self, receiver: str, body: bytes) -> bool:
            try:
                webhook.verify(dict(self.headers), body, behaviour.secrets[receiver])
            except (KeyError, webhook.NotVerified):
                return False
            return True

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: the tables have it."""

    return Handler


class Web(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked may have gone before the answer: a killed worker, or one that waited enough."""


async def main(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES)
    behaviour = Behaviour()
    with ConnectionPool(url, min_size=1, max_size=8) as pool:
        handler = Mails(pool, behaviour)
        mails = await asyncio.get_running_loop().create_server(
            lambda: SMTP(handler, hostname="sink"), "127.0.0.1", 0
        )
        web = Web(("127.0.0.1", 0), make_handler(pool, behaviour))
        threading.Thread(target=web.serve_forever, daemon=True).start()
        print(mails.sockets[0].getsockname()[1], web.server_address[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)  # until the story has ended, however
        web.shutdown()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
