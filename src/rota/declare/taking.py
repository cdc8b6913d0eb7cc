"""Jobs that take the results of the jobs before them."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

from rota.declare.job_type import NewJob
from rota.declare.result_of import ResultOf
from rota.errors import UsageError

T = TypeVar("T")

RESULTS_MAX = 1_000
"""Most results in one argument: all are part of one payload."""

Places = int | list[int]
"""Which of the jobs before it gives an argument: the place of one job, or of each job of a list."""


@overload
def result_of(job: NewJob[Coroutine[Any, Any, T]], /) -> T: ...


@overload
def result_of(job: NewJob[T], /) -> T: ...


def result_of(job: Any, /) -> Any:
    """Return what stands for the result of a job, as an argument of the job that follows it:
    `app.enqueue(first, then=double.new(rota.result_of(first)))`.

    The database puts the result into the payload when the first job has succeeded. To a type
    checker it is the result. A result that is not kept, such as one over 64 KiB, is None.

    Args:
        job: the job before it, or a member of the batch before it.

    Raises:
        UsageError: it is no job made with `job_type.new(…)`, or its type keeps no results.
    """
    return ResultOf([_check(job, "result_of")], is_list=False)


@overload
def results_of(jobs: Iterable[NewJob[Coroutine[Any, Any, T]]], /) -> list[T]: ...


@overload
def results_of(jobs: Iterable[NewJob[T]], /) -> list[T]: ...


def results_of(jobs: Any, /) -> Any:
    """Return what stands for the results of the members of a batch, in this order:
    `app.batch(pages, then=bind.new(rota.results_of(pages)))`. See `result_of`.

    Args:
        jobs: members of the batch, at most 1,000.

    Raises:
        UsageError: as `result_of`, or there are too many jobs.
    """
    listed = [_check(job, "results_of") for job in jobs]
    if len(listed) > RESULTS_MAX:
        raise UsageError(
            f"results_of takes at most {RESULTS_MAX:,} jobs, not {len(listed):,}: read "
            "app.batches.results in the handler, page by page"
        )
    return ResultOf(listed, is_list=True)


def _check(job: object, what: str) -> NewJob:
    if not isinstance(job, NewJob):
        raise UsageError(f"{what} takes a job made with job_type.new(…), not {job!r}")
    if job.job_type._declaration.options.history == "failures":
        raise UsageError(
            f"{what}: job type {job.job_type.name!r} keeps no results: declare it without "
            'history="failures"'
        )
    return job


def refuse_taking(job: NewJob) -> None:
    """Raise UsageError for a job that takes results and is enqueued without the jobs before it."""
    if job.takes is not None:
        raise UsageError(
            f"{_name(job)} takes the result of another job, so it must follow that job: "
            "app.enqueue(first, then=second.new(rota.result_of(first)))"
        )


def find_places(job: NewJob, before: Sequence[NewJob]) -> Mapping[str, Places]:
    """Return for each field that takes results which of the jobs before it has them. Raises
    UsageError for another job."""
    place_of = {id(other): place for place, other in enumerate(before)}
    found: dict[str, Places] = {}
    for field, taken in (job.takes or {}).items():
        places = [place_of.get(id(other)) for other in taken.jobs]
        known = [place for place in places if place is not None]
        if len(known) < len(places):
            raise UsageError(
                f"{_name(job)}, argument {field!r}: it takes the result of a job that it does not "
                "follow; give the same object to result_of and to the call, as in first = "
                "square.new(3), app.enqueue(first, then=double.new(rota.result_of(first)))"
            )
        found[field] = known if taken.is_list else known[0]
    return found


def _name(job: NewJob) -> str:
    return f"a job of type {job.job_type.name!r}"
