"""The release that is being replaced, as `python -m tests.worker.release_old OPTIONS`; see
release_new."""

from __future__ import annotations

import json
import logging
import sys

import rota

app = rota.App(release="old")


@app.job("greet")
async def greet(user: int) -> str:
    return f"hello {user}"


@app.job("bill")
def bill(order: int) -> int:
    return order


@app.job("draw")
async def draw(size: int) -> list[int]:
    return [size, size]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app.run(**json.loads(sys.argv[1]))
