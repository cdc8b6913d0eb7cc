"""The meta that an application's context managers give to the jobs of an enqueue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from msgspec.structs import replace

from rota.declare.around import EnqueueAround, make_manager, name_of, pass_errors_on
from rota.declare.job_type import NewJob
from rota.errors import UsageError

INSERTED = "the jobs of this enqueue were inserted before"
"""The note at the error of a context manager that cannot be left."""


@contextmanager
def carry_meta(
    arounds: Sequence[EnqueueAround], jobs: Sequence[NewJob]
) -> Iterator[Sequence[NewJob]]:
    """Enter all context managers once; yield the jobs with their meta. Raises as `gather_meta`."""
    with gather_meta(arounds, jobs) as meta:
        if meta:
            jobs = [replace(job, options=job.options.add_meta(meta)) for job in jobs]
        yield jobs


@contextmanager
def gather_meta(
    arounds: Sequence[EnqueueAround], jobs: Sequence[NewJob]
) -> Iterator[dict[str, Any]]:
    """Enter all context managers once; yield the meta that they give together: an inner one's name
    counts before an outer one's. Raises UsageError for what is no mapping, or has no JSON form."""
    meta: dict[str, Any] = {}
    is_inserted = False
    try:
        with ExitStack() as stack:
            for around in arounds:
                manager = make_manager(around, jobs, may_await=False)
                given = manager.__enter__()
                stack.push(pass_errors_on(manager.__exit__))
                meta.update(_check_given(around, given))
            yield meta
            is_inserted = True
    except BaseException as error:
        if is_inserted:
            error.add_note(INSERTED)
        raise


def _check_given(around: EnqueueAround, given: object) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(
            f"enqueue_middleware {name_of(around)}: it must yield a mapping, which is added "
            f"to the meta of the jobs, or nothing, not {given!r}"
        )
    return given or {}
