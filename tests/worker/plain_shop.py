"""An application of plain functions: `python -m tests.worker.plain_shop` is its worker. It knows no
event loop."""

from __future__ import annotations

import time

import rota

app = rota.App(release="shop-1", lease="30s")


@app.job("count", takes_context=True)
def count(ctx: rota.Context, to: int) -> int:
    """Take steps, say how far it is, and stop when told to."""
    for done in range(to):
        ctx.raise_if_cancelled()
        ctx.progress(done, to, "steps")
        time.sleep(0.02)
    return to


@app.job("hang", timeout="0.3s", max_attempts=1)
def hang() -> None:
    """Take longer than it may."""
    time.sleep(2)


@app.job("square", process=True)
def square(number: int) -> int:
    """Compute, in a process of its own."""
    return number**2


@app.job("charge", on_lost="dead")
def charge(invoice: int) -> str:
    """Happen once or not at all."""
    return f"charged {invoice}"


@app.job("ping", history="failures")
def ping() -> None:
    """Leave no trace."""


if __name__ == "__main__":
    app.run(concurrency=6, grace="1s")
