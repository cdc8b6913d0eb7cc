"""What a job or a batch belongs to: batches, the job that follows, waits and requeues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.dashboard.look import Look
from rota.errors import BatchNotFound
from rota.model.awaited import read_awaits
from rota.model.batch import META_KEY, Batch
from rota.model.job import Job, Status

SHOWN = 20
"""Most jobs that one job waits for, and most batches in one batch, that are shown."""
PARENTS = 10
"""Most batches around a batch that are shown."""


class Node(NamedTuple):
    how: str
    """Its relation to what stands around it, such as `then`; empty: it is within."""
    path: str
    """The path of its page or list; empty: it has none."""
    name: str
    batch: Batch | None = None
    status: str | None = None
    within: Sequence[Node] = ()
    is_here: bool = False
    """Whether this page is about it."""


def grow_of_job(look: Look, job: Job, chain: Sequence[Job]) -> list[Node]:
    """Return what a job belongs to; nothing: it stands alone."""
    own = [*_list_awaited(look, job), *_list_chain(job, chain)]
    before = _find_batch(look, _read_ended(job))
    if before is not None:
        own.insert(0, Node("follows", f"/batches/{before.id}", f"batch {before.id}", before))
    batch = _find_batch(look, job.batch)
    if batch is None and not own:
        return []
    here = _name_job(job, "", within=own, is_here=True)
    if batch is None:
        return [here]
    more = Node("", f"/batches/{batch.id}", f"and {batch.total - 1:,} more")
    members = [here, more] if batch.total > 1 else [here]
    return [_surround(look, batch, _make_batch(look, batch, members))]


def grow_of_batch(look: Look, batch: Batch) -> list[Node]:
    """Return what a batch belongs to, and the batches in it; nothing: it stands alone."""
    found = look.opened.find_inner_batches(batch.id, SHOWN + 1)
    within = [Node("", f"/batches/{one.id}", f"batch {one.id}", one) for one in found[:SHOWN]]
    if len(found) > SHOWN:
        within.append(Node("", "/batches", "and more batches"))
    grown = _surround(look, batch, _make_batch(look, batch, within, is_here=True))
    return [grown] if grown.within else []


def _list_awaited(look: Look, job: Job) -> list[Node]:
    ids = read_awaits(job).all
    found = {one.id: one for one in look.opened.find_by_ids(ids[:SHOWN])} if ids else {}
    nodes = [
        _name_job(found[id_], "waits for" if job.status is Status.WAITING else "waited for")
        if id_ in found
        else Node("waited for", f"/jobs/{id_}", f"job {id_}", status="gone")
        for id_ in ids[:SHOWN]
    ]
    if len(ids) > SHOWN:
        nodes.append(Node("", "", f"and {len(ids) - SHOWN:,} more jobs"))
    return nodes


def _list_chain(job: Job, chain: Sequence[Job]) -> list[Node]:
    return [
        _name_job(one, "requeue of" if one.id < job.id else "requeued as")
        for one in chain
        if one.id != job.id
    ][-SHOWN:]


def _name_job(job: Job, how: str, **more: Any) -> Node:
    name = f"job {job.id} {job.job_type}"
    return Node(how, f"/jobs/{job.id}", name, status=job.status, **more)


def _read_ended(job: Job) -> int | None:
    """Return the batch that a job follows."""
    meta = job.meta
    ended = meta.get(META_KEY) if isinstance(meta, dict) else None
    id_ = ended.get("id") if isinstance(ended, dict) else None
    return id_ if isinstance(id_, int) and id_ > 0 else None


def _find_batch(look: Look, id_: int | None) -> Batch | None:
    try:
        return None if id_ is None else look.opened.batches.get(id_)
    except BatchNotFound:  # retention has deleted it
        return None


def _make_batch(look: Look, batch: Batch, within: Sequence[Node], is_here: bool = False) -> Node:
    following = look.opened.find_by_ids([batch.then_job]) if batch.then_job else []
    then = [_name_job(job, "then") for job in following]
    name, path = f"batch {batch.id}", f"/batches/{batch.id}"
    return Node("", path, name, batch, within=[*within, *then], is_here=is_here)


def _surround(look: Look, batch: Batch, node: Node) -> Node:
    """Return a node in the batches around it."""
    for _ in range(PARENTS):
        parent = _find_batch(look, batch.parent)
        if parent is None:
            break
        batch, node = (
            parent,
            Node("", f"/batches/{parent.id}", f"batch {parent.id}", parent, within=[node]),
        )
    return node
