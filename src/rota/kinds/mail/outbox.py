"""Collects a test's mails with a real server on the loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import partial
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
    """Let aiosmtpd serve on the loopback, in its own thread; return the port. Raises as
    `outbox`."""
    try:
        from aiosmtpd.smtp import SMTP as Server  # noqa: N811, PLC0415 - only tests need it
    except ModuleNotFoundError:
        raise rota.errors.ConfigurationError(
            "mail.outbox needs a server for tests: pip install aiosmtpd"
        ) from None

    served: list[Server] = []
    opened: Future[tuple[int, Callable[[], object]]] = Future()

    async def serve() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def make() -> Server:
            served.append(Server(handler, loop=loop, hostname="localhost", **options))
            return served[-1]

        server = await loop.create_server(make, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        opened.set_result((port, partial(loop.call_soon_threadsafe, ended.set)))
        await ended.wait()
        server.close()
        for one in served:
            if one.transport is not None:
                one.transport.close()

    thread = threading.Thread(target=asyncio.run, args=[serve()], name="rota outbox")
    thread.start()
    port, end = opened.result()
    try:
        yield port
    finally:
        end()
        thread.join()
