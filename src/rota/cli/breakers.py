"""`rota breakers` lists circuit breakers; `rota breakers trip` opens one, `reset` closes it."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.flags import option
from rota.cli.grammar import make_noun
from rota.cli.listing import Field, Listing, count, label, spare
from rota.cli.output import Times
from rota.cli.queues import Lasting
from rota.cli.table import Kind
from rota.cli.target import Actor, Viewer
from rota.client.base import LIST_MAX
from rota.model.units import plural
from rota.records import BreakerRecord

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the breaker.")]
Key = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="Only this key. Default: the whole breaker."),
]


def breakers(
    limit: int = option("--limit", "Maximum number.", default=1_000, min=1, max=LIST_MAX),
    *,
    viewer: Viewer,
) -> None:
    """List circuit breakers, beginning with breakers that are not closed.

    A breaker with keys shows the keys that are open or have failures that count.
    """
    BREAKERS.show(viewer, lambda opened: opened.breakers.list(limit=limit))


def _next_try(breaker: BreakerRecord, times: Times) -> object:
    if breaker.state == "trial":
        return f"job {breaker.trial_job} tries"
    if breaker.state == "open" and breaker.open_until is None:
        return "once it is reset"
    if breaker.open_until is not None and breaker.open_until <= times.now:
        return "with its next job"
    return breaker.open_until


BREAKERS = Listing(
    "breakers",
    (
        Field(
            "breaker",
            lambda breaker, _: " ".join(filter(None, (breaker.name, breaker.key))),
            Kind.TYPE,
        ),
        "state",
        spare("failures"),
        Field("next try", _next_try),
        spare(count("waiting")),
        spare(Field("opened", "opened_at")),
        spare(label("by", "changed_by")),
        Field("reason", kind=Kind.ERROR),
    ),
    empty="no job type declares a breaker",
)


def trip(
    name: Name,
    key: Key = None,
    *,
    lasting: Lasting,
    actor: Actor,
) -> None:
    """Open a breaker: its jobs do not start until its time is over and one job has tried.

    Running jobs continue.
    """
    lasts, (name, key) = lasting.read(), _split(name, key)
    with actor.session() as opened:
        opened.breakers.trip(name, key, **lasts, why=actor.why, by=actor.by)
    until = f"until {lasting.until or 'it is reset'}"
    text = f"{_name(name, key)} is open {f'for {lasting.duration}' if lasting.duration else until}"
    facts = {"name": name, "key": key, "for": lasting.duration, "until": lasts["until"]}
    actor.say(facts, text)


def reset(
    name: Name,
    key: Key = None,
    *,
    actor: Actor,
) -> None:
    """Close a breaker and forget its failures: the waiting jobs start.

    Does nothing, and says so, if the breaker was closed without failures.
    """
    name, key = _split(name, key)
    with actor.session() as opened:
        closed = opened.breakers.reset(name, key, why=actor.why, by=actor.by)
    keys = f" ({plural(closed, 'key')})" if key is None and closed > 1 else ""
    did = f"is closed{keys}" if closed else "was closed, without failures"
    actor.say({"name": name, "key": key, "reset": closed}, f"{_name(name, key)} {did}")


def _split(name: str, key: str | None) -> tuple[str, str | None]:
    """Return a breaker's name and key, which the list shows as one text; no name has a blank."""
    first, _, rest = name.partition(" ")
    return (first, rest) if key is None and rest else (name, key)


def _name(name: str, key: str | None) -> str:
    return f"breaker {name}" + ("" if key is None else f" {key}")


app = make_noun(breakers, trip=trip, reset=reset)
