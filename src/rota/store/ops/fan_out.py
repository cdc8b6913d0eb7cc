"""How batches are made and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rota.model.job import Enqueued
from rota.store.driver import Operation, Query, format_numbers
from rota.store.ops.ask import ask
from rota.store.ops.enqueue import NewRow, insert_many

FOLD_MAX = 10_000
FOLDS_MAX = 100
"""Most folds in a row: a batch that another transaction has locked always leaves something."""


Takes = Mapping[str, Mapping[str, int | list[int]]]
"""Which results the jobs that follow take: by job and field, places among the jobs before it."""


def insert_batch(
    rows: Sequence[NewRow],
    then: Mapping[str, NewRow],
    takes: Takes,
    on_failure: str,
    parent: int | None,
) -> Operation[tuple[int | None, list[Enqueued]]]:
    """Insert jobs as the members of a new batch; return its id, and the results in the order of the
    input. Run it in one transaction. A job that joins another job by its key is no member. If all
    jobs join, there is no new batch, and the id is the joined members' batch; None: they have no
    common batch.

    Raises UsageError if there is no such parent, or it has ended.
    """
    # A job that follows a single job takes the result of the only member, whatever its id.
    needs_ids = len(rows) > 1 and any(takes.values())
    encoded = _encode_then(then, takes, {}) if then and not needs_ids else None
    id_ = yield from ask("batch_open", then=encoded, on_failure=on_failure, parent=parent)
    inserted = yield from insert_many(rows, id_)
    if needs_ids:
        ids = {place: job.id for place, job in enumerate(inserted)}
        yield from ask("batch_then", batch=id_, then=_encode_then(then, takes, ids))
    members = [job.id for job in inserted if job.created]
    joined = [] if members else [job.id for job in inserted]
    added = {"ids": format_numbers(members), "joined": format_numbers(joined)}
    return (yield from ask("batch_add", batch=id_, **added)), inserted


def fold_batches(limit: int = FOLD_MAX) -> Operation[bool]:
    """Count ended members, and enqueue what follows ended batches; return if any may be left."""
    [[is_left]] = yield Query("batches_fold", {"limit": limit})
    return bool(is_left)


def fold_all_batches() -> Operation[None]:
    """Count ended members until nothing is left: a batch that ends is a member of its parent."""
    for _ in range(FOLDS_MAX):
        if not (yield from fold_batches()):
            return


def mend_batches(limit: int) -> Operation[int]:
    """Count members that were deleted by hand; return in how many batches."""
    return (yield Query("batches_mend", {"limit": limit}))[0][0]  # type: ignore[no-any-return]


def _encode_then(then: Mapping[str, NewRow], takes: Takes, ids: Mapping[int, int]) -> str:
    """Return what follows a batch, as JSON text; `ids` of its jobs by their places, if needed."""
    jobs = {place: row.columns() for place, row in then.items()}
    for place, job in jobs.items():
        job["payload"] = msgspec.Raw(job["payload"].encode())
        if job["meta"] is not None:
            job["meta"] = msgspec.Raw(job["meta"].encode())
        # The later jobs of a chain follow one job each.
        known = {} if place.startswith("then ") else ids
        if given := takes.get(place):
            job["takes"] = {
                field: [known.get(at) for at in of] if isinstance(of, list) else known.get(of)
                for field, of in given.items()
            }
    return msgspec.json.encode(jobs).decode()
