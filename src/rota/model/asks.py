"""What a job asks of the rate limit and of the breaker of its type, as its row says it."""

from __future__ import annotations

META_KEY = "rota.asks"
"""Where the meta of a job says what it asks: `limit` and `breaker`, its keys there, and `cost`."""


def add_asks(meta_json: str | None, asks_json: str | None) -> str | None:
    """Return the meta of a job that asks this, as JSON text."""
    if asks_json is None:
        return meta_json
    rest = "" if meta_json is None or meta_json == "{}" else f"{meta_json[1:-1]},"
    return f'{{{rest}"{META_KEY}":{asks_json}}}'
