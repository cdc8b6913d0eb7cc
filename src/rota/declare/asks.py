"""What a job asks of its rate limit and its breaker: made at the enqueue, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.declare.key import KeyMaker, check_plain_key
from rota.declare.rate_limit import RateLimit
from rota.model.asks import META_KEY
from rota.model.bounds import KEY_MAX
from rota.model.job import Job


class AsksMaker:
    """The functions that a job type declares for its limit and its breaker."""

    required: tuple[str, ...]
    """What of `limit`, `cost` and `breaker` a row says unless its payload has it."""

    def __init__(self, limit: RateLimit | None, makers: Mapping[str, KeyMaker | None]) -> None:
        self._limit = limit
        self.makers = {name: maker for name, maker in makers.items() if maker is not None}
        self._stored = [name for name, maker in self.makers.items() if not maker.is_plain]
        self.required = tuple(
            name for name, maker in self.makers.items() if not maker.returns_argument
        )

    def make(self, arguments: Mapping[str, Any], index: int | None = None) -> str | None:
        """Return what the row of a job says, as JSON text; None: nothing. Raises UsageError."""
        checks = {"cost": self._limit.check_cost} if self._limit else {}
        made = {
            name: maker.make(arguments, index, checks.get(name, check_plain_key))
            for name, maker in self.makers.items()
        }
        stored = {name: made[name] for name in self._stored}
        return msgspec.json.encode(stored).decode() if stored else None

    def make_row(self) -> dict[str, Any]:
        """Return the columns of the type that say what a job asks, and where its row says it."""
        limit = self._limit
        return {
            "rate_limit": None if limit is None else limit.name,
            "cost": None if limit is None or callable(limit.cost) else limit.cost,
            "asks": self.required or None,
            "asks_from": {name: maker.find_place() for name, maker in self.makers.items()},
        }

    def read_breaker_key(self, job: Job) -> str:
        """Return the breaker key of a job as the SQL function `asks_key` does; "": it has none."""
        value = self._read(job, "breaker") if "breaker" in self.makers else None
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**100:
            return str(value)
        return value if isinstance(value, str) and 1 <= len(value) <= KEY_MAX else ""

    def _read(self, job: Job, name: str) -> Any:
        maker = self.makers[name]
        asks = None if maker.is_plain else _decode(job.meta_json or "{}").get(META_KEY)
        if isinstance(asks, dict) and name in asks:
            return asks[name]
        return maker.find(_decode(job.payload_json))


def _decode(text: str) -> dict[str, Any]:
    """Return an object of JSON; empty for unreadable text: the job is dead then."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
