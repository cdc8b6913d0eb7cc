"""`rota breakers` lists circuit breakers; `rota breakers trip` and `reset` open and close one."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rota.cli.listing import Field, Listing, Screen, label
from rota.cli.output import Times, cell, print_json
from rota.cli.table import Kind
from rota.cli.target import Actor, JsonOption, Place
from rota.client.base import LIST_MAX
from rota.model.bounds import COUNT_MAX
from rota.model.units import plural, show_count
from rota.records import BreakerRecord


class _ListByDefault(TyperGroup):
    """`rota breakers` is `rota breakers list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and "--help" not in args):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListByDefault,
    help="List circuit breakers, and what waits for them; trip: open one; reset: close one.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the breaker.")]
Key = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="Only this key. Default: the whole breaker."),
]


@app.command("list")
def breakers(
    limit: Annotated[int, typer.Option(min=1, max=LIST_MAX, help="Maximum number.")] = 1_000,
    *,
    place: Place,
    screen: Screen,
) -> None:
    """List circuit breakers, those that are not closed first.

    A breaker with keys shows those that are open or have failures that count.
    """
    BREAKERS.show(place, screen, lambda opened: opened.breakers.list(limit=limit))


def _next_try(one: BreakerRecord, times: Times) -> object:
    if one.state == "trial":
        return f"job {one.trial_job} tries"
    if one.state == "open" and one.open_until is None:
        return "once it is reset"
    if one.open_until is not None and one.open_until <= times.now:
        return "with its next job"
    return one.open_until


BREAKERS = Listing(
    "breakers",
    (
        label("breaker", "name"),
        label("key"),
        "state",
        "failures",
        Field("opened", "opened_at"),
        Field("next try", _next_try),
        Field("waiting", lambda one, _: show_count(one.waiting, COUNT_MAX)),
        Field("by", "changed_by"),
        Field("reason", kind=Kind.ERROR),
    ),
    empty="no job type declares a breaker",
)


@app.command()
def trip(
    name: Name,
    key: Key = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="How long, such as 10m. Default: until it is reset."
        ),
    ] = None,
    *,
    actor: Actor,
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Open a breaker: its jobs do not start, until the time is over and one job has tried.

    Running jobs continue.
    """
    with place.session() as opened:
        opened.breakers.trip(name, key, duration=duration, why=actor.why, by=actor.by)
    if as_json:
        print_json({"name": name, "key": key, "for": duration})
    else:
        until = "until it is reset" if duration is None else f"for {duration}"
        typer.echo(f"{_name(name, key)} is open {until}")


@app.command()
def reset(
    name: Name,
    key: Key = None,
    *,
    actor: Actor,
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Close a breaker and forget its failures: the jobs that wait for it start.

    Does nothing, and says so, if it was closed without failures.
    """
    with place.session() as opened:
        count = opened.breakers.reset(name, key, why=actor.why, by=actor.by)
    if as_json:
        print_json({"name": name, "key": key, "reset": count})
    elif not count:
        typer.echo(f"{_name(name, key)} was closed, without failures")
    else:
        keys = f" ({plural(count, 'key')})" if key is None and count > 1 else ""
        typer.echo(f"{_name(name, key)} is closed{keys}")


def _name(name: str, key: str | None) -> str:
    return f"breaker {cell(name).plain}" + ("" if key is None else f" {cell(key).plain}")
