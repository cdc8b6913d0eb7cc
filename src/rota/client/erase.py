"""Erases a person's data: the payloads and texts of jobs, and what quotes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from rota.client.base import check_by, check_id, check_why, encode_part
from rota.errors import JobNotFound, UsageError
from rota.model.record import Record
from rota.store import ops
from rota.store.driver import Operation

_STATEMENTS = {
    "job_history": """update {} set payload = '{{"rota.erased": true}}', meta = null, """
    "result = null, progress = null, last_error = null, cancel_reason = null, "
    "resolution = resolution - 'why', idempotency_key = null, group_key = null "
    "where payload @> :'payload'",
    "attempt": "update {} set message = replace(message, :'value', 'erased'), "
    "stack = replace(stack, :'value', 'erased') "
    "where strpos(concat(message, stack), :'value') > 0",
}
"""The statements that erase in a detached partition, for psql."""


class Erased(Record, frozen=True):
    """The result of an erasure."""

    jobs: int
    """How many jobs were erased, with their retries."""
    running: list[int]
    """Ids of running jobs: they are erased within an hour of their end."""
    refused: dict[int, str]
    """Why the database refuses to erase a job, by its id."""
    corrected: list[int]
    """Ids of earlier jobs that were retried as an erased job with another payload: they stay."""
    batches: list[int]
    """Batches whose `then` had the values in its payload: no job follows them."""
    schedules: list[str]
    """Schedules that still give the values to their jobs: change or delete them."""
    secrets: list[str]
    """Arguments that are stored sealed, and cannot be searched."""
    partitions: dict[str, str]
    """Detached and archived partitions, each with the statement for psql that erases in it, with
    the variables `payload` and `value`."""


def erase(
    payload: Mapping[str, Any] | None, job: int | None, why: str | None, by: str | None
) -> Operation[Erased]:
    """Erase jobs and what quotes them. Raises as `find_to_erase`."""
    found, corrected = yield from find_to_erase(payload, job, why)
    encoded = encode_part(payload, "payload")
    digest = hashlib.sha256((encoded or f"job {job}").encode()).hexdigest()[:16]
    # First: the addresses are lost when the jobs are erased.
    named = [] if encoded is None else (yield from ops.erase_payload(encoded))
    answers, refused = yield from ops.erase_jobs(found, check_why(why) or "", check_by(by), digest)
    names = {kind: [name for what, name in named if what == kind] for kind, _ in named}
    return Erased(
        jobs=list(answers.values()).count("erased"),
        running=sorted(id_ for id_, answer in answers.items() if answer == "requested"),
        refused=refused,
        corrected=corrected,
        batches=[int(id_) for id_ in names.get("batch", ())],
        schedules=names.get("schedule", []),
        secrets=names.get("secret", []),
        partitions={name: _statement(name) for name in names.get("partition", ())},
    )


def find_to_erase(
    payload: Mapping[str, Any] | None, job: int | None, why: str | None
) -> Operation[tuple[list[int], list[int]]]:
    """Find the jobs of an erasure, and the earlier jobs of their chains with another payload.
    Raises JobNotFound, and UsageError as `JobActions.erase`."""
    if (payload is None) == (job is None):
        raise UsageError("say which jobs are to be erased: give payload or job")
    reason = check_why(why)
    if reason is None:
        raise UsageError("why is required: it records why these jobs are erased")
    if any(_has(reason, value) for value in _leaves(payload)):
        raise UsageError("why stays, so it must not have a value that is to be erased")
    encoded, id_ = encode_part(payload, "payload"), None if job is None else check_id(job)
    found, corrected = yield from ops.find_to_erase(encoded, id_)
    if id_ is not None and not found:
        raise JobNotFound(id_)
    return found, corrected


def _leaves(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _has(text: str, value: str) -> bool:
    found = re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE)
    return bool(value) and found is not None


def _statement(partition: str) -> str:
    table = partition.rpartition(".")[2].rpartition("_")[0]
    return _STATEMENTS[table].format(partition)
