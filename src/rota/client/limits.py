"""Calls on rate limits: take starts, list the limits, change a limit."""

from __future__ import annotations

import builtins

from rota.client.base import Namespace, check_by, check_why
from rota.client.both import awaitable, both
from rota.declare.key import PlainKey, check_plain_key
from rota.declare.rate_limit import STARTS_MAX, check_limit_name, check_per
from rota.errors import LimitNotFound, UsageError
from rota.model.bounds import check_integer
from rota.model.units import Duration
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import LimitRecord


class Limits(Namespace):
    """`app.limits`: takes starts of rate limits, lists and changes limits.

    `why` and `by` are as in `app.cancel`.
    """

    @both
    def take(self, name: str, count: int = 1, *, key: PlainKey | None = None) -> Operation[bool]:
        """Take starts of a limit now, for work that is no job and shares its budget; return whether
        they were free. The call never waits.

        Args:
            count: how many, 1 … the burst of the limit.
            key: for a limit with keys: a text, an integer or a UUID.

        Raises:
            LimitNotFound: neither the database nor the code of this App knows the limit.
            UsageError: an argument is out of range, or the key is missing or too much.
        """
        check_limit_name(name)
        check_integer(count, "count", 1, STARTS_MAX)
        text = None if key is None else check_plain_key(key, "key")
        try:
            return (yield from ops.take_starts(name, text, count))
        except LimitNotFound:
            if not (yield from self._caller._declare_limit(name)):
                raise
        return (yield from ops.take_starts(name, text, count))  # no worker has started before

    atake = awaitable(take)

    @both
    def list(self) -> Operation[builtins.list[LimitRecord]]:
        """List the rate limits by name, with what waits for each."""
        return ops.ask_rows(LimitRecord, "limits_list", name=None)

    alist = awaitable(list)

    @both
    def set(
        self,
        name: str,
        limit: int | None = None,
        *,
        per: Duration | None = None,
        burst: int | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[LimitRecord]:
        """Change a limit, for all workers and at once; return it.

        The change stands until code declares other figures than before. Waiting jobs come forward
        if the limit was raised.

        Args:
            limit: most slots in any window of `per`. Defaults to what it is.
            per: the length of the window. Defaults to what it is.
            burst: most starts at once. Defaults to what it is, at most `limit`.

        Raises:
            LimitNotFound: there is no such limit.
            UsageError: an argument is out of range.
        """
        if limit is None and per is None and burst is None:
            raise UsageError("say what to change: the limit, its time (per) or its burst")
        if limit is not None:
            check_integer(limit, "limit", 1, STARTS_MAX)
        if burst is not None:
            check_integer(burst, "burst", 1, STARTS_MAX)
        per_s = None if per is None else check_per(per)
        yield from ops.set_limit(
            check_limit_name(name), limit, per_s, burst, check_why(why), check_by(by)
        )
        return (yield from ops.ask_row(LimitRecord, "limits_list", name=name))

    aset = awaitable(set)
