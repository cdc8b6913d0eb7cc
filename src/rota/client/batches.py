"""Calls on batches: enqueue jobs that are followed together, read their progress, cancel them."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rota.client.base import LIST_MAX, Namespace, check_id
from rota.client.both import awaitable, both
from rota.client.enqueue import (
    OF_MANY,
    ONE,
    EnqueueCalls,
    Following,
    Prepared,
    Then,
    check_job,
    find_connection,
    list_jobs,
    make_rows,
)
from rota.client.requests import ActionResult, make_request, sort_answers
from rota.declare.connection import AsyncConnection, Connection
from rota.declare.job_type import NewJob
from rota.declare.taking import Places, find_places
from rota.errors import BatchNotFound, UsageError
from rota.model.awaited import JobResult, OnFailure
from rota.model.batch import Batch
from rota.model.bounds import check_choice, check_integer
from rota.model.job import Action, Enqueued
from rota.model.units import plural
from rota.store import ops
from rota.store.db import RunOptions
from rota.store.driver import Operation

CHAIN_MAX = 100
"""Most jobs of a chain: one row keeps them all."""
OUTCOMES = ("ended", "succeeded", "failed")
PAGE = 1_000
"""Members that one statement cancels."""


class NewBatch(msgspec.Struct, frozen=True):
    """The result of `app.batch`."""

    id: int
    """The batch; if each job joined a member of one batch by its key, that batch, so that a
    repeated call returns the same batch."""
    jobs: list[Enqueued]
    """In the order of the input. A job that joined another job is no member."""

    def __repr__(self) -> str:
        return f"<batch {self.id} of {plural(len(self.jobs), 'job')}>"


class BatchCalls(EnqueueCalls):
    """The calls of an App that enqueue batches."""

    def batch(
        self,
        jobs: Iterable[NewJob],
        /,
        *,
        then: Then | None = None,
        on_failure: OnFailure = "continue",
        parent: int | None = None,
        connection: Connection | UnsetType = UNSET,
    ) -> NewBatch:
        """Insert jobs that are followed together, all or none, as `enqueue_many` does.

        A member has ended when it has succeeded, is cancelled, or is dead. When all have ended, the
        job `then` is enqueued, once. Its handler reads in `ctx.ended_batch` how many did not
        succeed. A batch without members ends at once.

        Args:
            jobs: the members, made with `job_type.new(…)`. A job whose key another job has joins
                that job and is no member.
            then: the job that follows, or a mapping with a job for each outcome: `succeeded` (all
                members have) and `failed`. A list is a chain: each job is enqueued when the job
                before it has succeeded. Defaults to none.
            on_failure: "continue": `then` is enqueued, however the members have ended. "wait": only
                when all have succeeded, also requeued members. So is always a chain, and a job that
                takes results: `then=bind.new(rota.results_of(jobs))`. Defaults to "continue".
            parent: the id of a batch that has not ended, of which this batch becomes a member, as
                in `parent=ctx.job.batch`.
            connection: whose transaction the INSERTs join. Defaults to that of the jobs.

        Raises:
            UsageError: an argument is unfit, or the parent has ended. Or each job joined another
                job by its key, and these jobs are not of one batch.
            PayloadError, KeyTaken, DatabaseUnavailable: as `enqueue_many`.
        """
        request = _read_request(jobs, then, on_failure, parent)
        with self._prepare_batch(request, connection) as (operation, given, how):
            return _refuse_no_batch(*self._run(operation, given, **how))

    async def abatch(
        self,
        jobs: Iterable[NewJob],
        /,
        *,
        then: Then | None = None,
        on_failure: OnFailure = "continue",
        parent: int | None = None,
        connection: AsyncConnection | UnsetType = UNSET,
    ) -> NewBatch:
        """Insert jobs that are followed together. Arguments and errors are as in `batch`."""
        request = _read_request(jobs, then, on_failure, parent)
        with self._prepare_batch(request, connection) as (operation, given, how):
            return _refuse_no_batch(*await self._arun(operation, given, **how))

    def _prepare_batch(
        self, request: _BatchRequest, connection: Any
    ) -> Prepared[tuple[int | None, builtins.list[Enqueued]]]:
        given = find_connection(request.jobs, connection)
        insert = partial(self._insert_batch, request)
        return self._prepare(request.jobs, given, insert, OF_MANY, [*request.then.values()])

    def _prepare_then(self, job: NewJob, then: Then) -> Prepared[Enqueued]:
        request = _read_request([job], then, "continue", None)
        insert = partial(self._insert_first, request)
        how: RunOptions = {**OF_MANY, "patience": ONE}
        return self._prepare([job], job.options.connection, insert, how, [*request.then.values()])

    def _insert_first(
        self, request: _BatchRequest, carried: Sequence[NewJob]
    ) -> Operation[Enqueued]:
        """Insert a batch of one job; return this job."""
        _, [made] = yield from self._insert_batch(request, carried)
        return made

    def _insert_batch(
        self, request: _BatchRequest, carried: Sequence[NewJob]
    ) -> Operation[tuple[int | None, builtins.list[Enqueued]]]:
        """Insert a batch whose jobs and `then` carry more meta. Return its id; None: each job
        joined another job, and these jobs are not of one batch."""
        members, following = carried[: len(request.jobs)], carried[len(request.jobs) :]
        then = dict(zip(request.then, make_rows(following), strict=True))
        rows, on_failure = make_rows(members), request.on_failure
        insert = ops.insert_batch(rows, then, request.takes, on_failure, request.parent)
        yield from self._refuse_large(carried, indexed=True)
        return (yield from self._watch_payloads(members, insert, indexed=True))


class Batches(Namespace):
    """`app.batches`: read and cancel batches."""

    @both
    def get(self, id: int) -> Operation[Batch]:
        """Read a batch.

        Raises:
            BatchNotFound: there is no such batch.
        """
        return _read(id)

    aget = awaitable(get)

    @both
    def list(
        self, *, before: int | None = None, limit: int = 100
    ) -> Operation[builtins.list[Batch]]:
        """List batches, the newest first.

        Args:
            before: only batches with a lower id, for the next page.
            limit: maximum number of batches, 1 … 10,000. Defaults to 100.
        """
        if before is not None:
            check_id(before)
        check_integer(limit, "limit", 1, LIST_MAX)
        return ops.ask_rows(Batch, "batches_list", id=None, before=before, limit=limit)

    alist = awaitable(list)

    @both
    def results(
        self, id: int, *, after: int | None = None, limit: int = 1_000
    ) -> Operation[builtins.list[JobResult]]:
        """Read the outcomes of the jobs in a batch, in the order in which they were inserted.

        The result of a job that a person requeued stands in the place of the first. The list lacks
        inner batches, and jobs of which no row is kept (`history="failures"`).

        Args:
            after: only jobs with a higher id, for the next page: the last `id` of this page.
            limit: maximum number of jobs, 1 … 10,000; each result has up to 64 KiB. Defaults to
                1,000.

        Raises:
            BatchNotFound: there is no such batch.
            UsageError: an argument is unfit.
        """
        check_integer(limit, "limit", 1, LIST_MAX)
        after = 0 if after is None else check_id(after)
        yield from _read(id)
        page = {"batch": id, "after": after, "limit": limit}
        return (yield from ops.ask_rows(JobResult, "batch_results", **page))

    aresults = awaitable(results)

    @both
    def cancel(
        self, id: int, *, why: str | None = None, by: str | None = None
    ) -> Operation[ActionResult]:
        """Cancel the unfinished members of a batch and of the batches in it.

        Running members are asked to stop. Members that were enqueued while the call ran are
        cancelled too. `why` and `by` are as in `app.cancel`.

        Raises:
            BatchNotFound: there is no such batch.
            UsageError: an argument is unfit.
        """
        request = make_request(Action.CANCEL, by, why)
        yield from _read(id)
        answers: builtins.list[ops.Answer] = []
        refusals: dict[int, str] = {}
        for batch in (yield from ops.ask_rows(int, "batch_tree", batch=id)):
            page = {"batch": batch, "after": 0, "limit": PAGE}
            while ids := (yield from ops.ask_rows(int, "batch_members", **page)):
                done, refused = yield from ops.act_on_many(request, ids)
                answers += done
                refusals |= refused
                page["after"] = ids[-1]
        return sort_answers(request.action, answers, refusals)

    acancel = awaitable(cancel)


def _read(id_: int) -> Operation[Batch]:
    found = yield from ops.ask_rows(Batch, "batches_list", id=check_id(id_), before=None, limit=1)
    if not found:
        raise BatchNotFound(id_)
    return found[0]


def _refuse_no_batch(id_: int | None, jobs: builtins.list[Enqueued]) -> NewBatch:
    if id_ is None:
        raise UsageError(
            f"there is nothing to follow: each of the {plural(len(jobs), 'job')} joined another "
            "one by its key, and those are not of one batch"
        )
    return NewBatch(id_, jobs)


class _BatchRequest(msgspec.Struct, frozen=True):
    jobs: builtins.list[NewJob]
    then: Mapping[str, NewJob]
    """The jobs that follow: by outcome, and the later jobs of a chain as `then 2` and so on."""
    takes: Mapping[str, Mapping[str, Places]]
    """Which results they take: of the jobs, the later ones of the job before each."""
    on_failure: OnFailure
    parent: int | None


def _read_request(
    jobs: Iterable[NewJob], then: Then | None, on_failure: OnFailure, parent: int | None
) -> _BatchRequest:
    listed = list_jobs(jobs)
    following: dict[str, NewJob] = {}
    takes: dict[str, Mapping[str, Places]] = {}
    check_choice(on_failure, "on_failure", get_args(OnFailure))
    if isinstance(then, Mapping):
        by_outcome = dict(then)
    elif isinstance(then, NewJob | None):
        ended = "ended" if then is None or then.takes is None else "succeeded"
        by_outcome = {} if then is None else {ended: then}
    else:
        by_outcome = {"succeeded": then}
    if not isinstance(then, Mapping) and "succeeded" in by_outcome:
        on_failure = "wait"
    for outcome, follows in by_outcome.items():
        before = listed
        for place, job in _read_chain(outcome, follows).items():
            takes[place] = find_places(job, before)
            following[place] = job if job.takes is None else replace(job, takes=None)
            before = [job]
    if parent is not None:
        check_id(parent)
    return _BatchRequest(listed, following, takes, on_failure, parent)


def _read_chain(outcome: str, follows: Following) -> dict[str, NewJob]:
    """Return the jobs that follow an outcome, by where the batch keeps them. Raises UsageError."""
    if outcome not in OUTCOMES:
        raise UsageError(f"then: the outcomes are {', '.join(OUTCOMES)}, not {outcome!r}")
    what = "then" if outcome == "ended" else f"then[{outcome!r}]"
    if isinstance(follows, list | tuple):
        chain = list_jobs(follows)
    else:
        check_job(follows, what)
        chain = [cast("NewJob", follows)]
    if outcome != "succeeded" and (len(chain) > 1 or [job for job in chain if job.takes]):
        raise UsageError(
            f"{what}: a chain, or a job that takes a result, goes on only after a success: "
            "then={'succeeded': …}"
        )
    if len(chain) > CHAIN_MAX:
        raise UsageError(f"{what}: a chain has at most {CHAIN_MAX} jobs, not {len(chain)}")
    return {f"then {n}" if n > 1 else outcome: job for n, job in enumerate(chain, 1)}
