"""`rota limits` lists rate limits; `rota limits set` changes a limit."""

from __future__ import annotations

from rota.cli.flags import argument, option
from rota.cli.grammar import make_noun
from rota.cli.listing import Field, Listing, count, label, number, span, spare
from rota.cli.table import Kind
from rota.cli.target import Actor, Viewer
from rota.model.bounds import COUNT_MAX
from rota.model.units import words


def limits(viewer: Viewer) -> None:
    """List rate limits: their values, who changed them, and the jobs that wait for them."""
    LIMITS.show(viewer, lambda opened: opened.limits.list(), counted_to=COUNT_MAX)


LIMITS = Listing(
    "limits",
    (
        label("limit", "name"),
        number("starts", lambda limit, _: f"{limit.starts:,}"),
        span("per", "per_s"),
        spare(number("burst", lambda limit, _: f"{limit.burst:,}")),
        count("waiting"),
        spare(number("keys", lambda limit, _: limit.waiting_keys if limit.keyed else None)),
        Field(
            "next slot",
            lambda limit, _: (
                "now" if limit.keyed is False and limit.next_at is None else limit.next_at
            ),
        ),
        spare(Field("changed", "changed_at")),
        spare(label("by", "changed_by")),
        Field("why", "changed_why", Kind.ERROR),
    ),
    empty="no rate limits",
)


def set_(
    name: str = argument("NAME", "Name of the limit."),
    limit: int | None = argument(
        "LIMIT", "Most starts in the time. Default: as it is.", default=None
    ),
    per: str | None = option("--per DURATION", "The time, such as 1m. Default: as it is."),
    burst: int | None = option("--burst NUMBER", "Most starts at once. Default: as it is."),
    *,
    actor: Actor,
) -> None:
    """Change a rate limit, for all workers and at once.

    It stands until code declares other values than it did last.
    """
    with actor.session() as opened:
        changed = opened.limits.set(name, limit, per=per, burst=burst, why=actor.why, by=actor.by)
    starts = f"{changed.starts:,} starts in {words(changed.per_s)}, {changed.burst:,} at once"
    actor.say(changed, f"rate limit {changed.name}: {starts}")


app = make_noun(limits, set_=set_)
