"""`rota groups` lists ordered groups: the jobs that hold them, and the jobs that wait in them."""

from __future__ import annotations

from rota.cli.flags import flag, option
from rota.cli.listing import (
    Field,
    Listing,
    add_one,
    count,
    label,
    number,
    show_status,
    spare,
)
from rota.cli.output import Times
from rota.cli.table import Kind
from rota.cli.target import Viewer
from rota.client.base import LIST_MAX
from rota.model.bounds import COUNT_MAX
from rota.records import Group

HOLDERS_SHOWN = 3


def groups(
    group_key: str | None = option("--key KEY", "Only the group with this key."),
    halted: bool = flag("--halted", "Only groups that a dead job halts."),
    limit: int = option("--limit", "Maximum number.", default=100, min=1, max=LIST_MAX),
    after: str | None = option("--after KEY", "Only groups after this key: for the next page."),
    *,
    viewer: Viewer,
) -> None:
    """List ordered groups with jobs that hold a place or wait for a place, by key."""
    GROUPS.show(
        viewer,
        lambda opened: opened.groups.list(
            group_key, halted=halted, after=after, limit=add_one(limit)
        ),
        empty=_say_none(group_key, halted),
        limit=limit if group_key is None else None,
        counted_to=COUNT_MAX,
    )


def _say_none(group_key: str | None, halted: bool) -> str:
    if group_key is None:
        return "no halted groups" if halted else GROUPS.empty
    group = f"group {group_key}"
    return f"{group} is not halted" if halted else f"no job holds or waits for a place in {group}"


def _list_holders(lane: Group, times: Times) -> str:
    holders = sorted(lane.holders, key=lambda holder: holder.id != lane.halted_by)
    listed = [
        f"{'halted by ' if holder.id == lane.halted_by else ''}job {holder.id} "
        f"{show_status(holder.status, None, times)} since {times.show(holder.since)}"
        for holder in holders[:HOLDERS_SHOWN]
    ]
    more = ["…"] if lane.held > HOLDERS_SHOWN else []
    return ", ".join(listed + more)


GROUPS = Listing(
    "groups",
    (
        label("group", "group_key"),
        spare(number("at once", "capacity")),
        count("held"),
        count("waiting"),
        spare("oldest due"),
        Field("held by", _list_holders, Kind.TEXT),
    ),
    empty="no ordered groups in which jobs run or wait",
    page=("--after", "group_key"),
)
