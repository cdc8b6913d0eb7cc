"""A mail server on the loopback that does what a table says: another behaviour is another row."""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Answer = Callable[[str, str], Awaitable[bool]]
DROP, HANG = "drop", "hang"
"""What it does instead of an answer: it closes the connection, or never answers."""


@dataclass
class Server:
    """The server, and what it heard."""

    says: Mapping[str, str]
    """An answer to a verb, as `MAIL`; to the n-th on a connection, as `MAIL 4`; on the n-th
    connection only, as `1:MAIL`. The verbs are those of SMTP, `hello` (the greeting), and `.` (the
    end of a message). Anything else is answered well."""
    offers: Sequence[str] = ()
    offers_in_tls: Sequence[str] = ()
    certificate: Path | None = None
    """With its key, in one file. None: it closes the connection instead of a handshake."""
    port: int = 0
    heard: list[str] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    """Those that it took."""
    connections: int = 0
    hung: threading.Event = field(default_factory=threading.Event)
    """It has begun not to answer."""
    clients: dict[asyncio.Task[Any], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.clients[task] = writer
        number, counts = self.connections, Counter[str]()

        async def answer(verb: str, usual: str) -> bool:
            """Whether the usual answer was given."""
            counts[verb] += 1
            keys = (f"{verb} {counts[verb]}", verb, f"{number}:{verb}")
            said = next((self.says[key] for key in keys if key in self.says), usual)
            if said == HANG:
                self.hung.set()
                await reader.read()  # until the client has had enough
            if said not in (HANG, DROP):
                writer.write(f"{said}\r\n".encode())
            if said in (HANG, DROP) or said.startswith("421"):
                writer.close()
            return said == usual

        await answer("hello", "220 here")
        while not writer.is_closing() and (line := await reader.readline()):
            self.heard.append(line.decode().strip())
            await self._obey(reader, writer, answer)
        writer.close()

    async def _obey(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer
    ) -> None:
        verb = re.split(r"[ :]", self.heard[-1].upper())[0]
        if verb == "EHLO":
            is_tls = writer.get_extra_info("ssl_object") is not None
            lines = ["here", *(self.offers_in_tls if is_tls else self.offers)]
            usual = "\r\n".join(f"250-{line}" for line in lines[:-1])
            await answer(verb, f"{usual}\r\n250 {lines[-1]}".strip())
        elif verb == "DATA":
            if await answer(verb, "354 go on"):
                self.messages.append((await reader.readuntil(b"\r\n.\r\n"))[:-3])
                if not await answer(".", "250 2.0.0 taken"):
                    self.messages.pop()
        elif verb == "STARTTLS":
            if await answer(verb, "220 go on"):
                await self._secure(writer)
        elif verb == "AUTH":
            if "PLAIN" not in self.heard[-1]:  # the others say more, once they are asked
                writer.write(b"334 PDFAaGVyZT4=\r\n")
                self.heard.append((await reader.readline()).decode().strip())
            await answer(verb, "235 2.7.0 in")
        else:
            await answer(verb, "221 bye" if verb == "QUIT" else "250 2.1.0 well")

    async def _secure(self, writer: asyncio.StreamWriter) -> None:
        if self.certificate is None:
            return writer.close()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        try:
            await writer.start_tls(context)
        except OSError:  # the client does not trust it
            writer.close()


@contextmanager
def speaking(
    says: Mapping[str, str],
    offers: Sequence[str] = (),
    offers_in_tls: Sequence[str] = (),
    certificate: Path | None = None,
) -> Iterator[Server]:
    """Serve for a block, in a thread of its own."""
    made, loop = Server(says, offers, offers_in_tls, certificate), asyncio.new_event_loop()

    async def run() -> None:
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
        made.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        for task, writer in made.clients.items():
            writer.transport.abort()
            await asyncio.wait([task])

    ready, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
