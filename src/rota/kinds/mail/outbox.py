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
    try:
        from aiosmtpd.smtp import SMTP as Server  # noqa: N811, PLC0415 - only tests need it
    except ModuleNotFoundError:
        raise rota.errors.ConfigurationError(
            "mail.outbox needs a server for tests: pip install aiosmtpd"
        ) from None
    taken: list[EmailMessage] = []

    class Keep:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
            taken.append(message_from_bytes(envelope.content, policy=policy.default))
            return "250 OK"

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="rota outbox", daemon=True)
    thread.start()
    served: list[Any] = []

    def serve() -> Any:
        served.append(Server(Keep(), loop=loop, hostname="localhost", enable_SMTPUTF8=True))
        return served[-1]

    opening = loop.create_server(serve, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(opening, loop).result()
    before = mailer.transport
    mailer.transport = SMTP(f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}?starttls=never")
    try:
        yield taken
    finally:
        mailer.transport = before
        asyncio.run_coroutine_threadsafe(_end(server, served), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server, served: list[Any]) -> None:
    server.close()
    for one in served:
        if one.transport is not None:
            one.transport.abort()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
