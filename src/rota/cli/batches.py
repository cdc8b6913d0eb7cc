"""`rota batches` lists batches; `rota batches show` and `cancel` take a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rota.cli.flags import option
from rota.cli.grammar import make_noun
from rota.cli.listing import Field, Listing, add_one, number, spare
from rota.cli.output import Times, print_facts, print_json
from rota.cli.target import Actor, Viewer
from rota.client.base import LIST_MAX
from rota.model.batch import Batch
from rota.model.units import plural

Id = Annotated[int, typer.Argument(metavar="ID", help="Id of the batch.", min=1)]


def batches(
    limit: int = option("--limit", "Maximum number.", default=100, min=1, max=LIST_MAX),
    before: int | None = option(
        "--before ID", "Only batches below this id: for the next page.", min=1
    ),
    *,
    viewer: Viewer,
) -> None:
    """List batches and how far they are, the newest first."""
    most = add_one(limit)
    BATCHES.show(viewer, lambda opened: opened.batches.list(before=before, limit=most), limit=limit)


def show(id: Id, *, viewer: Viewer) -> None:
    """Show how far a batch is, and what follows it."""
    with viewer.session() as opened:
        found = opened.batches.get(id)
        times = viewer.read_times(opened)
    if viewer.as_json:
        print_json(found)
        return
    print_facts(_facts(found, times), times)


def _facts(found: Batch, times: Times) -> Iterator[tuple[str, Any]]:
    yield "batch", found.id
    failed = f"failed: {found.dead:,} dead, {found.cancelled:,} cancelled"
    outcome = failed if found.outcome == "failed" else found.outcome
    yield "outcome", outcome or f"{found.ended:,} of {found.total:,} have ended"
    yield "succeeded", f"{found.succeeded:,}"
    yield "dead", f"{found.dead:,}"
    yield "cancelled", f"{found.cancelled:,}"
    yield "live", f"{found.live:,}"
    yield "parent", found.parent
    yield "on failure", found.on_failure
    for name in ("created_at", "ended_at", "then_at"):
        yield name.replace("_", " "), getattr(found, name)
    yield "then", _follow(found)
    yield "error of then", found.then_error


def _follow(batch: Batch) -> str | None:
    if batch.then_job is not None:
        return f"job {batch.then_job}"
    if batch.then_error is not None:
        return "refused"
    return None


BATCHES = Listing(
    "batches",
    (
        Field("batch", "id"),
        number("jobs", "total"),
        *map(number, ("succeeded", "dead", "cancelled", "live")),
        spare(Field("made", "created_at")),
        spare(Field("ended", "ended_at")),
        Field("then", lambda batch, _: _follow(batch)),
    ),
    empty="no batches",
    page=("--before", "id"),
)


def cancel(id: Id, *, actor: Actor) -> None:
    """Cancel the members of a batch that have not ended; running ones are asked to stop."""
    with actor.session() as opened:
        result = opened.batches.cancel(id, why=actor.why, by=actor.by)
    jobs = plural(len(result.done), "job")
    actor.say(result, f"cancelled, or asked to stop: {jobs}")


app = make_noun(batches, show=show, cancel=cancel)
