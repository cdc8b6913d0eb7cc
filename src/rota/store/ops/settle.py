"""How a claim is held, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import psycopg

from rota.errors import PayloadError, SchemaError
from rota.job import Job, Status
from rota.settle import Transition
from rota.store.db import Operation, Query
from rota.store.ops.claim import Claimant
from rota.store.ops.upkeep import ensure_partitions
from rota.store.trouble import PartitionMissing, blames_rows, first_line, is_waiting


@dataclass(frozen=True, slots=True)
class Renewed:
    """Which of the leases were still held, and which of those jobs somebody wants stopped, each with the reason."""

    held: set[int]
    renewed: set[int]
    """Without those that somebody's open transaction has locked: they are held, and the next try is due at once."""
    cancels: dict[int, str | None]
    refused: dict[int, str] = field(default_factory=dict)
    """Those that the database would not renew, and why: they are held until somebody reaps them."""


class Refused(msgspec.Struct, frozen=True):
    """What the database would not take for one claim, while it took that of others."""

    why: str
    locked: bool = False
    """Whether somebody else's open transaction holds the row: it can be written when that ends."""


def renew(held: Sequence[tuple[int, int]], who: Claimant) -> Operation[Renewed]:
    """Renew the leases of (id, claims). One that the database refuses to renew counts as held, and does not cost the others theirs."""
    try:
        rows = yield Query("job_renew", {**_claims(held), "types": who.types, "leases": who.leases})
        return Renewed({row[0] for row in rows}, {row[0] for row in rows if row[1]}, {row[0]: row[3] for row in rows if row[2]})
    except (psycopg.Error, PayloadError, SchemaError) as error:
        if not blames_rows(error) or is_waiting(error):
            raise
        refusal = f"{type(error).__name__}: {first_line(error)}"
    if len(held) == 1:
        return Renewed({held[0][0]}, set(), {}, {held[0][0]: refusal})
    half = len(held) // 2
    first = yield from renew(held[:half], who)
    second = yield from renew(held[half:], who)
    return Renewed(first.held | second.held, first.renewed | second.renewed, first.cancels | second.cancels, first.refused | second.refused)


def start(held: Sequence[tuple[int, int]]) -> Operation[dict[int, bool | Refused]]:
    """Record that (id, claims) are about to begin; return the ids still held, and whether each was recorded: one that somebody else's transaction has
    locked was not. What the database refuses for one never stops the others."""
    try:
        return dict((yield Query("job_start", _claims(held))))
    except (psycopg.Error, PayloadError, SchemaError) as error:
        if not blames_rows(error) or is_waiting(error):
            raise
        if len(held) == 1:
            return {held[0][0]: Refused(f"{type(error).__name__}: {first_line(error)}")}
    half = len(held) // 2
    first = yield from start(held[:half])
    return first | (yield from start(held[half:]))


def _claims(held: Sequence[tuple[int, int]]) -> dict[str, str]:
    return {"ids": numbers([id_ for id_, _ in held]), "claims": numbers([claim for _, claim in held])}


def progress(said: Sequence[tuple[int, int, str]]) -> Operation[dict[int, bool]]:
    """Write what was said of (id, claims), in JSON; return the ids still held, and whether it was written: a locked row is not waited for."""
    ids, claims, texts = ([one[at] for one in said] for at in range(3))
    rows = yield Query("job_progress", {"ids": ids, "claims": claims, "said": texts})
    return dict(rows)


class Ending(msgspec.Struct, frozen=True):
    """What is to be written for one attempt."""

    job: Job
    transition: Transition
    ran_s: float | None
    """Seconds since the handler began; None when it did not."""


class Written(msgspec.Struct, frozen=True):
    """What a claim that was still held came to: the stored status, and run_at where the job runs again."""

    status: str
    run_at: datetime | None = None
    reason: str | None = None
    """Why somebody called the job off while it ran."""


Settled = dict[int, Written | Refused]
_UNSTORABLE = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex)
_SUCCEEDED = Written(Status.SUCCEEDED.value)
_LOCKED = Refused("the row is locked by a transaction that does not end", locked=True)


def finish(endings: Sequence[Ending], release: str, *, careful: bool = False) -> Operation[Settled]:
    """Move jobs that are over to history. Ids that are missing from the answer were no longer held.

    A result that the database cannot store is left out; it never changes the outcome. What the database refuses for one never stops the others.
    `careful`: after a try that failed, rows that somebody else has locked are left out from the start.
    """
    begin = _settle_free if careful else _settle
    return begin(endings, lambda some, texts: _finish(some, release, with_results=texts))


def give_back(endings: Sequence[Ending], release: str, *, careful: bool = False) -> Operation[Settled]:
    """Take jobs that are not over out of `running`. Ids that are missing from the answer were no longer held.

    An error text that the database cannot store is left out. What the database refuses for one never stops the others. `careful` as in `finish`.
    """
    begin = _settle_free if careful else _settle
    return begin(endings, lambda some, texts: _give_back(some, release, with_texts=texts))


_Write = Callable[[Sequence[Ending], bool], Operation[dict[int, Written]]]


def _settle(endings: Sequence[Ending], write: _Write, *, texts: bool = True) -> Operation[Settled]:
    try:
        return dict((yield from _write(endings, write, texts=texts)))
    except (psycopg.Error, PayloadError, SchemaError) as error:  # a trigger of the user's may miss a table or a privilege
        if not blames_rows(error):
            raise
        refusal = error
    if len(endings) == 1:
        if texts and isinstance(refusal, _UNSTORABLE):
            return (yield from _settle(endings, write, texts=False))
        locked = is_waiting(refusal) and not (yield from _free(endings))
        return {endings[0].job.id: _LOCKED if locked else Refused(f"{type(refusal).__name__}: {first_line(refusal)}")}
    if is_waiting(refusal):
        return (yield from _settle_free(endings, write, refusal))
    half = len(endings) // 2  # one bad row among a thousand is found in twenty statements
    first = yield from _settle(endings[:half], write, texts=texts)
    return first | (yield from _settle(endings[half:], write, texts=texts))


def _settle_free(endings: Sequence[Ending], write: _Write, refusal: Exception | None = None) -> Operation[Settled]:
    """Leave out the rows that somebody else's transaction holds. They are asked for without waiting: each of them could cost a lock_timeout."""
    free = yield from _free(endings)
    settled: Settled = {ending.job.id: _LOCKED for ending in endings if ending.job.id not in free}
    if refusal is not None and not settled:
        raise refusal  # it is something else that takes so long: the next try is for fewer
    rest = [ending for ending in endings if ending.job.id in free]
    return settled | ((yield from _settle(rest, write)) if rest else {})


def _write(endings: Sequence[Ending], write: _Write, *, texts: bool) -> Operation[dict[int, Written]]:
    try:
        return (yield from write(endings, texts))
    except PartitionMissing:
        yield from ensure_partitions()
        return (yield from write(endings, texts))


def _free(endings: Sequence[Ending]) -> Operation[set[int]]:
    """Which of the jobs nobody else holds a lock on, those that are gone included."""
    ids = [ending.job.id for ending in endings]
    locked = yield Query("jobs_locked", {"ids": numbers(ids)})
    return set(ids) - {row[0] for row in locked}


def _finish(endings: Sequence[Ending], release: str, *, with_results: bool) -> Operation[dict[int, Written]]:
    statuses = [ending.transition.status.value for ending in endings]
    results = [ending.transition.result_json for ending in endings] if with_results else []
    reasons = [ending.transition.reason for ending in endings] if with_results else []
    rows = yield Query(
        "job_finish",
        {
            "ids": numbers([ending.job.id for ending in endings]),
            "claims": numbers([ending.job.claims for ending in endings]),
            "statuses": statuses if statuses.count(Status.SUCCEEDED) < len(statuses) else None,
            "ran_s": numbers([ending.ran_s for ending in endings]),
            "results": results if any(results) else None,
            "reasons": reasons if any(reasons) else None,
            "resolutions": None,
            "release": release,
        },
    )
    ended = {row[0] for row in rows}
    return {
        ending.job.id: _SUCCEEDED if status == "succeeded" else Written(status)
        for ending, status in zip(endings, statuses, strict=True)
        if ending.job.id in ended
    }


def numbers(values: Sequence[float | None]) -> str:
    """Numbers as the text of an SQL array: the server reads it ten times faster than the driver writes its binary form."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _give_back(endings: Sequence[Ending], release: str, *, with_texts: bool) -> Operation[dict[int, Written]]:
    outcomes = msgspec.json.encode([_outcome(ending, with_texts=with_texts) for ending in endings]).decode()
    rows = yield Query("job_leave", {"outcomes": outcomes, "release": release})
    return {row[0]: Written(*row[1:]) for row in rows}


def _outcome(ending: Ending, *, with_texts: bool) -> dict[str, Any]:
    transition, failure = ending.transition, ending.transition.failure
    outcome: dict[str, Any] = {
        "id": ending.job.id,
        "claims": ending.job.claims,
        "status": transition.status.value,
        "charged": transition.charged,
        "loss": transition.loss,
        "delay_s": transition.delay_s,
        "ran_s": ending.ran_s,
        "misfit": transition.misfit,
    }
    if failure is not None:
        outcome |= {
            "error_type": failure.error_type,
            "message": failure.message if with_texts else "its text could not be stored",
            "verdict": failure.verdict,
            "verdict_rule": failure.verdict_rule,
            "response_code": failure.response_code,
            "stack": failure.stack if with_texts else None,
        }
    return outcome


def settled(endings: Sequence[Ending], worker: str) -> Operation[dict[int, Written]]:
    """Say which of these endings the worker has written already."""
    params = {
        "ids": numbers([ending.job.id for ending in endings]),
        "claims": numbers([ending.job.claims for ending in endings]),
        "succeeded": [ending.job.job_type if ending.transition.status == Status.SUCCEEDED else None for ending in endings],
        "worker": worker,
    }
    rows = yield Query("claims_settled", params)
    return {row[0]: Written(row[1], row[2]) for row in rows}
