"""A worker whose handlers send a message over HTTP, under an effect: `python -m tests.worker.sender
OPTIONS`, OPTIONS being `App.run`'s in JSON."""

from __future__ import annotations

import json
import logging
import sys
import urllib.request

import rota

app = rota.App(lease="2m", release="sender-1")
RETRY = rota.Fixed("1s", jitter=0)


def send(ctx: rota.Context, url: str, policy: rota.records.IfUncertain) -> None:
    """Send one message, which names its effect."""
    with ctx.effect(f"{policy}:{ctx.job.id}", if_uncertain=policy) as effect:
        if not effect.done:
            urllib.request.urlopen(url, data=effect.key.encode(), timeout=30).close()
            effect.result = "sent"


@app.job("skip", retry=RETRY, max_attempts=1_000, takes_context=True)
def skip(ctx: rota.Context, url: str) -> None:
    """At most once."""
    send(ctx, url, "skip")


@app.job("repeat", retry=RETRY, max_attempts=1_000, takes_context=True)
def repeat(ctx: rota.Context, url: str) -> None:
    """At least once."""
    send(ctx, url, "repeat")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    app.run(**json.loads(sys.argv[1]))
