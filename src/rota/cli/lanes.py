"""`rota lanes` lists lanes: what holds them, and what waits in them."""

from __future__ import annotations

from typing import Annotated

import typer

from rota import Lane
from rota.cli.output import Times, cell, print_json, print_table
from rota.cli.table import Column, Kind
from rota.cli.target import JsonOption, Place, UtcOption
from rota.client.base import LIST_MAX
from rota.model.bounds import COUNT_MAX
from rota.model.units import show_count

HOLDERS_SHOWN = 3


def lanes(
    group_key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="Only the lane with this group key."),
    ] = None,
    halted: Annotated[
        bool, typer.Option("--halted", help="Only lanes that a dead job halts.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=LIST_MAX, help="Maximum number of lanes.")] = 100,
    after: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Only lanes after this group key: for the next page."),
    ] = None,
    *,
    place: Place,
    utc: UtcOption = False,
    as_json: JsonOption = False,
) -> None:
    """List lanes with jobs that hold a place or wait for one, by group key."""
    with place.session() as opened:
        found = opened.lanes.list(group_key, halted=halted, after=after, limit=limit)
        times = Times(opened.read_clock(), utc)
    if as_json:
        print_json({"lanes": found, "counted_to": COUNT_MAX})
        return
    columns = (
        Column("lane", Kind.NAME),
        Column("at once", Kind.NUMBER),
        Column("held", Kind.NUMBER),
        Column("waiting", Kind.NUMBER),
        "oldest due",
        Column("held by", Kind.TEXT),
    )
    rows = [
        (
            lane.group_key,
            lane.capacity,
            show_count(lane.held, COUNT_MAX),
            show_count(lane.waiting, COUNT_MAX),
            lane.oldest_due,
            _list_holders(lane, times),
        )
        for lane in found
    ]
    print_table(columns, rows, empty=_say_none(group_key, halted), times=times)
    if len(found) == limit and group_key is None:
        typer.echo(f"next page: --after {found[-1].group_key!r}", err=True)


def _say_none(group_key: str | None, halted: bool) -> str:
    if group_key is None:
        return "no halted lanes" if halted else "no lanes in which jobs run or wait"
    lane = f"lane {cell(group_key).plain}"
    return f"{lane} is not halted" if halted else f"no job holds or waits for a place in {lane}"


def _list_holders(lane: Lane, times: Times) -> str:
    holders = sorted(lane.holders, key=lambda one: one.id != lane.halted_by)
    listed = [
        f"{'halted by ' if one.id == lane.halted_by else ''}job {one.id} {one.status} since "
        f"{times.show(one.since)}"
        for one in holders[:HOLDERS_SHOWN]
    ]
    more = ["…"] if lane.held > HOLDERS_SHOWN else []
    return ", ".join(listed + more)
