"""Small pictures of lists: the last runs of a schedule, how far a batch is. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from rota.dashboard.life import share
from rota.model.units import words
from rota.records import Batch, Run

HEIGHT, LEAST, STEP, WIDTH = 24.0, 3.0, 6, 4
PLACES = 20
"""The last run stands at the right, however many runs there are."""
_BAR = Markup(
    '<rect class="{}" x="{}" y="{:.1f}" width="{}" height="{:.1f}"><title>{}</title></rect>'
)


def draw_runs(runs: Sequence[Run]) -> Markup:
    """Draw runs, which come with the newest first: the colour is the status, the height the time
    that it took."""
    most_s = max((run.ran_s or 0.0 for run in runs), default=0.0) or 1.0
    shapes = Markup()
    for place, run in enumerate(reversed(runs[:PLACES]), max(0, PLACES - len(runs))):
        height = max(LEAST, HEIGHT * (run.ran_s or 0.0) / most_s)
        shapes += _BAR.format(
            run.status, place * STEP, HEIGHT - height, WIDTH, height, _describe(run)
        )
    counts = Counter(run.status for run in runs[:PLACES])
    said = ", ".join(f"{jobs} {status}" for status, jobs in counts.items())
    return Markup(
        '<svg class="runs" role="img" aria-label="{}" width="{}" height="{:g}">{}</svg>'
    ).format(f"the last runs: {said}", PLACES * STEP, HEIGHT, shapes)


def _describe(run: Run) -> str:
    when = run.scheduled_for or run.enqueued_at
    took = "" if run.ran_s is None else f", took {words(run.ran_s)}"
    error = "" if run.error_type is None else f", {run.error_type}"
    how = "" if run.scheduled_for else ", triggered"
    return f"{when:%Y-%m-%d %H:%M} {when:%Z}: {run.status}{took}{error}{how}"


def draw_batch(batch: Batch, counts: Mapping[str, int] | None = None) -> Markup:
    """Draw how many members of a batch have which status, as `count_members` says; without it,
    members that have not ended are one part."""
    shown = counts or count_members(batch, {})
    said = ", ".join(f"{count:,} {name}" for name, count in shown.items()) or "no members"
    left, shapes = 0.0, Markup()
    for (name, count), width in zip(shown.items(), share([*shown.values()]), strict=True):
        shapes += Markup(
            '<rect class="{}" x="{:.2f}%" width="{:.2f}%" height="100%"><title>{:,} {}</title>'
            "</rect>"
        ).format(name, left, width, count, name)
        left += width
    return Markup('<svg class="far" role="img" aria-label="{}">{}</svg>').format(
        f"batch {batch.id}: {said} of {batch.total:,}", shapes
    )


def count_members(batch: Batch, alive: Mapping[str, int]) -> dict[str, int]:
    """Return how many members have which status, without zeros. `alive` counts jobs that are not
    over; those beyond its limit, and batches in the batch, are `live`."""
    alive = {name: jobs for name, jobs in alive.items() if name != "dead"}
    counts = {
        "succeeded": batch.succeeded, **alive, "live": batch.live - sum(alive.values()),
        "cancelled": batch.cancelled, "dead": batch.dead,
    }  # fmt: skip
    return {name: count for name, count in counts.items() if count > 0}
