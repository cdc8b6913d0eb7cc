"""An App whose jobs call endpoints, one breaker for each."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from urllib.parse import urlsplit

import rota

app = rota.App(release="endpoints-1")


class Answered(Exception):
    """The endpoint's answer is an error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered with {status}")
        self.status = status


@app.job(
    "call",
    timeout="2s",
    retry=rota.Fixed("10m"),
    breaker=rota.Breaker(key=lambda url: urlsplit(url).netloc, failures=5),
)
async def call(url: str) -> None:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(f"GET {where.path} HTTP/1.0\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
    finally:
        writer.close()
    if status >= 400:
        raise Answered(status)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app.run(**json.loads(sys.argv[1]))
