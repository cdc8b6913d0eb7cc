"""Calls on circuit breakers: list them, and open or close one by hand."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

from rota.client.base import LIST_MAX, Namespace, check_who
from rota.client.both import awaitable, both
from rota.client.queues import check_lasting
from rota.declare.key import PlainKey, check_plain_key
from rota.model.bounds import NAME_MAX, check_integer, check_text
from rota.model.units import Duration
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import BreakerRecord


class Breakers(Namespace):
    """`app.breakers`: lists circuit breakers, and opens or closes one by hand.

    `why` and `by` are as in `app.cancel`.
    """

    @both
    def list(
        self, name: str | None = None, *, limit: int = 1_000
    ) -> Operation[builtins.list[BreakerRecord]]:
        """List the breakers: each key that is open or has failures that count, and each declared
        breaker without such a key.

        Args:
            name: only of this breaker.
            limit: most to return, 1 … 10,000; breakers that are not closed come first.
        """
        if name is not None:
            _check_name(name)
        check_integer(limit, "limit", 1, LIST_MAX)
        return ops.ask_rows(BreakerRecord, "breakers_list", name=name, limit=limit)

    alist = awaitable(list)

    @both
    def trip(
        self,
        name: str,
        key: PlainKey | None = None,
        *,
        duration: Duration | None = None,
        until: datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[None]:
        """Open a breaker: no job of it starts, until its time is over and one job has tried.
        Running jobs continue.

        Args:
            key: only of this key: a text, an integer or a UUID. Defaults to the whole breaker.
            duration: how long. Defaults to until `reset`.
            until: when that time ends: an aware datetime. Not together with `duration`.

        Raises:
            UsageError: no declared job type has this breaker, or an argument cannot be stored.
        """
        ends = check_lasting(duration, until)
        return _trip({**_check_place(name, key), **ends, **check_who(why, by)})

    atrip = awaitable(trip)

    @both
    def reset(
        self,
        name: str,
        key: PlainKey | None = None,
        *,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[int]:
        """Close a breaker, and forget its failures: the jobs that wait for it start. Return how
        many keys changed; nothing is written if all were closed without failures.

        Args:
            key: only of this key: a text, an integer or a UUID. Defaults to the whole breaker.

        Raises:
            UsageError: no declared job type has this breaker, or an argument cannot be stored.
        """
        return ops.ask("breaker_reset", **_check_place(name, key), **check_who(why, by))

    areset = awaitable(reset)


def _trip(asked: dict[str, Any]) -> Operation[None]:
    yield from ops.ask("breaker_trip_for", **asked)


def _check_name(name: str) -> str:
    return check_text(name, "a breaker's name", NAME_MAX)


def _check_place(name: str, key: PlainKey | None) -> dict[str, str | None]:
    text = None if key is None else check_plain_key(key, "a breaker's key")
    return {"name": _check_name(name), "key": text}
