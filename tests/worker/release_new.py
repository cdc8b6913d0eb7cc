"""The next release: `greet` takes a field more, `bill` is called `invoice`, `draw` means its
payload differently, and `thank` is new."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import rota

app = rota.App(release="new")


@app.job("greet")
async def greet(user: int, language: str = "en") -> str:
    return f"hello {user} in {language}"


@app.job("invoice", aliases=("bill",))
def invoice(order: int) -> int:
    return order


def _with_sides(payload: dict[str, Any]) -> dict[str, Any]:
    return {"width": payload["size"], "height": payload["size"]}


@app.job("draw", version=2, upgrade={1: _with_sides})
async def draw(width: int, height: int) -> list[int]:
    return [width, height]


@app.job("thank")
async def thank(user: int) -> str:
    return f"thanks {user}"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app.run(**json.loads(sys.argv[1]))
