"""Collects a test's mails with a real server on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

import rota
from rota.kinds.mail.transport import SMTP

if TYPE_CHECKING:
    from rota.kinds.mail.mailer import Mailer


@contextmanager
def outbox(mailer: Mailer) -> Iterator[list[EmailMessage]]:
    """Send this mailer's mails to a server of the test while the block runs; return what it took,
    in order. `pip install aiosmtpd`.

    Raises:
        ConfigurationError: aiosmtpd is not installed.
    """
    taken: list[EmailMessage] = []

    class Keep:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
            taken.append(message_from_bytes(envelope.content, policy=policy.default))
            return "250 OK"

    before = mailer.transport
    with serving(Keep()) as port:
        mailer.transport = SMTP(f"smtp://127.0.0.1:{port}?starttls=never")
        try:
            yield taken
        finally:
            mailer.transport = before


@contextmanager
def serving(handler: Any) -> Iterator[int]:
    """Let aiosmtpd serve on the loopback, in its own thread; return the port. Raises as
    `outbox`."""
    try:
        from aiosmtpd.controller import Controller  # noqa: PLC0415 - only tests need it
    except ModuleNotFoundError:
        raise rota.errors.ConfigurationError(
            "mail.outbox needs a server for tests: pip install aiosmtpd"
        ) from None

    class Server(Controller):
        def _trigger_server(self) -> None:
            """Learn which port the system has chosen, before the first connection."""
            listening: Any = self.server
            self.port = listening.sockets[0].getsockname()[1]
            super()._trigger_server()  # type: ignore[no-untyped-call]

    server = Server(handler, "127.0.0.1", 0, server_hostname="localhost")
    server.start()
    try:
        yield server.port
    finally:
        server.stop()
