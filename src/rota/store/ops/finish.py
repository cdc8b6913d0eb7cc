"""How a claim ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from rota.model.job import Job, Status
from rota.model.settle import Transition
from rota.store.driver import Operation, Query, format_numbers, format_params
from rota.store.errors import PartitionMissing, RowLocked, RowRefused, Unstorable
from rota.store.isolate import Split, isolate
from rota.store.ops.claim import ID, Branches, Claimant, Claimed, read_taken
from rota.store.ops.lease import Refused, format_claims, progress
from rota.store.ops.partitions import retry_with_partitions


class Ending(msgspec.Struct, frozen=True):
    job: Job
    transition: Transition
    ran_s: float | None
    """Seconds since the handler began; None: it did not."""
    completes: bool = False
    """Whether its handler may have finished the job in its own transaction."""
    frees_place: bool = False
    """Whether the job has a lane or counts in a concurrency limit."""
    ended_s_ago: float = 0.0
    """How long ago its handler ended."""


class Written(msgspec.Struct, frozen=True):
    """How a claim that was still held ended: the stored status, and run_at for another run."""

    status: str
    run_at: datetime | None = None
    reason: str | None = None
    """The reason of a cancel that was requested while the job ran."""


Settled = dict[int, Written | Refused]
_SUCCEEDED = Written(Status.SUCCEEDED.value)
DELAY_TRY_S = 5.0
"""Seconds that the outcome of a waiting job waits while its limit cannot be delayed."""
LIMIT_LOCKED = Refused("its rate limit is locked by a transaction", locked=True, of_row=False)
LOCKED = Refused("the row is locked by a transaction that does not end", locked=True, of_row=False)


def finish(endings: Sequence[Ending], release: str, *, careful: bool = False) -> Operation[Settled]:
    """Move finished jobs to history. An id that is missing in the answer was no longer held.

    A result that the database cannot store is left out; it never changes the outcome. A refusal of
    one job never stops the others; a refusal of the statement itself is raised. `careful`: after a
    failed try, rows that another transaction has locked are left out from the start.
    """
    return _settle(endings, partial(_finish, release), careful=careful)


def leave(endings: Sequence[Ending], release: str, *, careful: bool = False) -> Operation[Settled]:
    """Take jobs that are not over out of `running`. An id that is missing in the answer was not
    held.

    An error text that the database cannot store is left out. A refusal of one job never stops the
    others. `careful` as in `finish`. Limits are delayed first: until that can be written, their
    jobs are refused, at most for DELAY_TRY_S.
    """
    refused = yield from _delay_limits(
        [ending for ending in endings if ending.transition.delays_limit]
    )
    free = [ending for ending in endings if ending.job.id not in refused]
    return refused | (yield from _settle(free, partial(_leave, release), careful=careful))


def _delay_limits(endings: Sequence[Ending]) -> Operation[Settled]:
    """Delay the limits of jobs whose providers want no more for now; return refused jobs."""
    if not endings:
        return {}
    rooms = [ending.transition.waits_for for ending in endings]
    # From when the handlers ended: a second try delays no limit for longer.
    delays_s = [(ending.transition.delay_s or 0.0) - ending.ended_s_ago for ending in endings]
    why = LIMIT_LOCKED
    try:
        rows = yield Query("limits_delay", {"rooms": rooms, "delays_s": delays_s})
        missing = {row[0] for row in rows}
    except (RowRefused, RowLocked) as error:
        why, missing = Refused(error.summary, of_row=False), set(rooms)
    return {
        ending.job.id: why
        for ending in endings
        if ending.transition.waits_for in missing and ending.ended_s_ago < DELAY_TRY_S
    }


def finish_plain(
    claims: Sequence[tuple[int, int, float]], release: str, *, frees_places: bool = False
) -> Operation[set[int] | None]:
    """Move jobs to history whose handlers just returned; return the ids of moved jobs.

    Each is (id, claims, seconds since the handler began). It does what `finish` does, in one
    statement and without an object for each. None: it moved none, because the database refused or
    another transaction has locked a job; a careful `finish` finds it. `frees_places`: some have a
    lane or count in a concurrency limit.
    """
    try:
        rows = yield _ask_to_finish(claims, release, frees_places=frees_places)
    except PartitionMissing:
        return set()
    except (RowRefused, RowLocked):
        return None
    return {row[0] for row in rows}


def finish_and_pass(
    claims: Sequence[tuple[int, int, float]], who: Claimant, branches: Branches
) -> Operation[tuple[set[int], Claimed] | None]:
    """Do what `finish_plain` does with jobs, some of them with a lane, and claim the next jobs of
    these lanes unless another job that these branches find comes first. None: also if the partition
    of the day is missing."""
    asked = {
        "room": branches.ordinary,
        "lo": branches.lo,
        "hi": branches.hi,
        "queues": branches.queues,
        "priorities": branches.priorities,
        "after_run_at": branches.after_run_at,
        "after_id": branches.after_id,
    }
    try:
        rows = yield Query(
            "worker_finish_passing",
            {**_format_claims(claims), **who.params, **format_params(asked)},
        )
    except (PartitionMissing, RowRefused, RowLocked):
        return None
    *_, started, finished = rows[0]
    return set(finished), read_taken(who, [row for row in rows if row[ID] is not None], started)


Completion = Operation[bool]


def complete(
    job: Job,
    ran_s: float | None,
    result_json: str | None,
    release: str,
    progress_json: str | None = None,
) -> Completion:
    """Move a job to history as a success, in the caller's transaction; return if it was held."""
    yield Query("completion_begin", {"id": job.id, "claims": job.claims})
    if progress_json is not None:
        yield from progress([(job.id, job.claims, progress_json)], waits=True)
    transition = Transition("succeed", Status.SUCCEEDED, result_json=result_json)
    return bool((yield from _finish(release, [Ending(job, transition, ran_s)], True)))


def keep_results(results: Sequence[tuple[int, int, str]]) -> Operation[dict[int, str]]:
    """Write the results, in JSON, of finished (id, claims); return the refusals."""

    def write(some: Sequence[tuple[int, int, str]]) -> Operation[None]:
        ids, claims, texts = ([result[at] for result in some] for at in range(3))
        yield Query("results_keep", {"ids": ids, "claims": claims, "results": texts})

    isolated = yield from isolate(results, write)
    return {id_: why for (id_, _, _), why in isolated.refused}


def settle_one(ending: Ending, release: str) -> Operation[Written | None]:
    """Write how one claim ended, in the transaction of the caller's connection; None: it was not
    held. A text that the database cannot store is left out."""
    write = partial(_finish if ending.transition.status.is_over else _leave, release, [ending])
    yield Query("partitions_ensure", {"days": 0})
    yield Query("savepoint", command="savepoint rota_settle")
    try:
        written = yield from write(True)
    except Unstorable:
        yield Query("savepoint", command="rollback to savepoint rota_settle")
        written = yield from write(False)
    yield Query("savepoint", command="release savepoint rota_settle")
    return written.get(ending.job.id)


Write = Callable[[Sequence[Ending], bool], Operation[dict[int, Written]]]


def _settle(endings: Sequence[Ending], write: Write, *, careful: bool) -> Operation[Settled]:
    locked: Sequence[Ending] = []
    if careful:
        endings, locked = yield from _split_locked(endings)
    settled: Settled = {ending.job.id: LOCKED for ending in locked}
    if not endings:
        return settled
    write_some = partial(_write, write)
    try:
        return settled | (yield from write_some(endings))
    except (RowRefused, RowLocked) as error:
        tried = error
    if isinstance(tried, RowRefused):
        yield from write_some([_make_probe(endings[0])])
    isolated = yield from isolate(endings, write_some, tried=tried, split_locked=_split_locked)
    settled |= {ending.job.id: LOCKED for ending in isolated.locked}
    fit = {ending.job.id for ending in isolated.fit}
    settled |= {
        ending.job.id: Refused(why, of_row=ending.job.id not in fit)
        for ending, why in isolated.refused
    }
    for written in isolated.answers:
        settled |= written
    return settled


def _make_probe(ending: Ending) -> Ending:
    """Return the ending of a job that cannot exist: if it is refused too, no job is at fault."""
    nobody = msgspec.structs.replace(ending.job, id=0)
    plain = Transition("probe", ending.transition.status)
    return Ending(nobody, plain, None, frees_place=ending.frees_place)


def _write(write: Write, endings: Sequence[Ending]) -> Operation[dict[int, Written]]:
    """Write endings in one statement; a single ending without texts that cannot be stored."""
    with_texts = partial(write, endings, True)
    try:
        try:
            return (yield from with_texts())
        except PartitionMissing as error:
            return (yield from retry_with_partitions(with_texts, tried=error))
    except Unstorable:
        if len(endings) > 1:
            raise
    return (yield from retry_with_partitions(partial(write, endings, False)))


def _split_locked(endings: Sequence[Ending]) -> Operation[Split[Ending]]:
    """Split off the jobs that another transaction has locked; jobs that are gone count as free. It
    asks without waiting: each locked row could cost a lock_timeout."""
    ids = format_numbers([ending.job.id for ending in endings])
    locked = {row[0] for row in (yield Query("jobs_locked", {"ids": ids}))}
    return (
        [ending for ending in endings if ending.job.id not in locked],
        [ending for ending in endings if ending.job.id in locked],
    )


def _finish(
    release: str,
    endings: Sequence[Ending],
    with_results: bool,
) -> Operation[dict[int, Written]]:
    statuses = [ending.transition.status for ending in endings]
    are_alike = statuses.count(Status.SUCCEEDED) == len(statuses)
    results = [ending.transition.result_json for ending in endings] if with_results else []
    reasons = [ending.transition.reason for ending in endings] if with_results else []
    rows = yield _ask_to_finish(
        [(ending.job.id, ending.job.claims, ending.ran_s) for ending in endings],
        release,
        statuses=None if are_alike else [status.value for status in statuses],
        results=results if any(results) else None,
        reasons=reasons if any(reasons) else None,
        frees_places=any(ending.frees_place for ending in endings),
    )
    ended = {row[0] for row in rows}
    return {
        ending.job.id: _SUCCEEDED if status is Status.SUCCEEDED else Written(status.value)
        for ending, status in zip(endings, statuses, strict=True)
        if ending.job.id in ended
    }


def _ask_to_finish(
    claims: Sequence[tuple[int, int, float | None]],
    release: str,
    *,
    statuses: list[str] | None = None,
    results: list[str | None] | None = None,
    reasons: list[str | None] | None = None,
    frees_places: bool = False,
) -> Query:
    """Return the statement for (id, claims, seconds of the handler), by default of successes."""
    texts = {"statuses": statuses, "results": results, "reasons": reasons, "resolutions": None}
    params = {**_format_claims(claims), **texts, "release": release}
    return Query("job_finish_laned" if frees_places else "job_finish", params)


def _format_claims(claims: Sequence[tuple[int, int, float | None]]) -> dict[str, str]:
    ids, numbers, ran_s = zip(*claims, strict=True)
    ran_us = [None if value is None else int(1e6 * value) for value in ran_s]
    return {
        "ids": format_numbers(ids),
        "claims": format_numbers(numbers),
        "ran_us": format_numbers(ran_us),
    }


def _leave(
    release: str,
    endings: Sequence[Ending],
    with_texts: bool,
) -> Operation[dict[int, Written]]:
    outcomes = msgspec.json.encode(
        [_outcome(ending, with_texts=with_texts) for ending in endings]
    ).decode()
    frees_places = any(ending.frees_place for ending in endings)
    statement = "job_leave_laned" if frees_places else "job_leave"
    rows = yield Query(statement, {"outcomes": outcomes, "release": release})
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
        "payload_mismatch": transition.payload_mismatch,
        "waits_for": transition.waits_for,
    }
    if transition.awaits is not None:
        awaits = transition.awaits
        outcome["awaits"] = {"jobs": awaits.jobs, "on_failure": awaits.on_failure}
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


def find_settled(endings: Sequence[Ending], worker: str) -> Operation[dict[int, Written]]:
    """Return which of these endings the worker has written already."""
    claims = format_claims([(ending.job.id, ending.job.claims) for ending in endings])
    succeeded = [
        ending.job.job_type
        if ending.completes or ending.transition.status == Status.SUCCEEDED
        else None
        for ending in endings
    ]
    rows = yield Query("claims_settled", {**claims, "succeeded": succeeded, "worker": worker})
    return {row[0]: Written(row[1], row[2]) for row in rows}
