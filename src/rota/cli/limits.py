"""`rota limits` lists rate limits; `rota limits set` changes one."""

from __future__ import annotations

from typing import Annotated

import typer

from rota import LimitRecord
from rota.cli.bundle import spread
from rota.cli.output import Times, cell, print_json, print_table, print_text
from rota.cli.table import Column, Kind
from rota.cli.target import Actor, JsonOption, Place, UtcOption
from rota.model.bounds import COUNT_MAX
from rota.model.units import show_count, words

app = typer.Typer(help="List rate limits, with what waits for them; set: change one.")


def limits(
    context: typer.Context,
    place: Place,
    utc: UtcOption = False,
    as_json: JsonOption = False,
) -> None:
    """List rate limits: their figures, who changed them, and the jobs that were handed back.

    `rota limits set` changes one.
    """
    if context.invoked_subcommand is not None:
        return
    with place.session() as opened:
        found = opened.limits.list()
        times = Times(opened.read_clock(), utc)
    if as_json:
        print_json({"limits": found, "counted_to": COUNT_MAX})
        return
    columns = (
        Column("limit", Kind.NAME),
        Column("starts", Kind.NUMBER),
        "per",
        Column("burst", Kind.NUMBER),
        Column("waiting", Kind.NUMBER),
        Column("keys", Kind.NUMBER),
        "next slot",
        "changed",
        "by",
        Column("why", Kind.ERROR),
    )
    rows = [
        (
            one.name, f"{one.starts:,}", words(one.per_s), f"{one.burst:,}",
            show_count(one.waiting, COUNT_MAX), one.waiting_keys if one.keyed else None,
            _next_slot(one), one.changed_at, one.changed_by, one.changed_why,
        )
        for one in found
    ]  # fmt: skip
    print_table(columns, rows, empty="no rate limits", times=times)


def _next_slot(one: LimitRecord) -> object:
    if one.keyed is False and one.next_at is None:
        return "now"
    return one.next_at


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the limit.")],
    limit: Annotated[
        int | None,
        typer.Argument(metavar="LIMIT", help="Most starts in the time. Default: as it is."),
    ] = None,
    per: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="The time, such as 1m. Default: as it is."),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Most starts at once. Default: as it is."),
    ] = None,
    *,
    actor: Actor,
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Change a rate limit, for all workers and at once.

    It stands until code declares other figures than it did last.
    """
    with place.session() as opened:
        changed = opened.limits.set(name, limit, per=per, burst=burst, why=actor.why, by=actor.by)
    if as_json:
        print_json(changed)
        return
    print_text(
        f"rate limit {cell(changed.name).plain}: {changed.starts:,} starts in "
        f"{words(changed.per_s)}, {changed.burst:,} at once"
    )


app.callback(invoke_without_command=True)(spread(limits))
