"""What a test's mails are sent to: a real server on the loopback."""

from __future__ import annotations

import asyncio
import threading
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
    with serving(Keep(), enable_SMTPUTF8=True) as port:
        mailer.transport = SMTP(f"smtp://127.0.0.1:{port}?starttls=never")
        try:
            yield taken
        finally:
            mailer.transport = before


@contextmanager
def serving(handler: Any, **options: Any) -> Iterator[int]:
    """Let aiosmtpd serve on the loopback, in a thread of its own; return the port. Raises as
    `outbox`."""
    try:
        from aiosmtpd.smtp import SMTP as Server  # noqa: N811, PLC0415 - only tests need it
    except ModuleNotFoundError:
        raise rota.errors.ConfigurationError(
            "mail.outbox needs a server for tests: pip install aiosmtpd"
        ) from None

    class Connection(Server):
        def __init__(self) -> None:
            super().__init__(handler, loop=loop, hostname="localhost", **options)
            self.is_lost = asyncio.Event()
            served.append(self)

        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            self.is_lost.set()

    async def end() -> None:
        server.close()
        for one in served:
            if one.transport is not None:
                one.transport.close()
        await asyncio.gather(*(one.is_lost.wait() for one in served))
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    served: list[Connection] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="rota outbox")
    thread.start()
    opening = loop.create_server(Connection, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(opening, loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
