"""Calls on ordered groups: list them."""

from __future__ import annotations

import builtins

from rota.client.base import LIST_MAX, Namespace
from rota.client.both import awaitable, both
from rota.errors import UsageError
from rota.model.bounds import KEY_MAX, check_bool, check_integer, check_text
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import Group


class Groups(Namespace):
    """`app.groups`: what holds the ordered groups, and what waits in them."""

    @both
    def list(
        self,
        group_key: str | None = None,
        *,
        halted: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Operation[builtins.list[Group]]:
        """List ordered groups with jobs that hold a place or wait for a place, by group key.

        Args:
            group_key: only this group. Defaults to all.
            halted: only groups that a dead job halts.
            after: only group keys after this key, for the next page.
            limit: maximum number of groups, 1 … 10,000. Defaults to 100.
        """
        for name, value in {"group_key": group_key, "after": after}.items():
            if value is not None:
                check_text(value, name, KEY_MAX)
        if group_key is not None and after is not None:
            raise UsageError("give group_key or after, not both")
        check_bool(halted, "halted")
        check_integer(limit, "limit", 1, LIST_MAX)
        return ops.find_groups(group_key, halted=halted, after=after, limit=limit)

    alist = awaitable(list)
