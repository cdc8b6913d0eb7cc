"""The jobs that a block of a test must enqueue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rota.client.base import LIST_MAX
from rota.model.job import Job
from rota.store import ops
from rota.store.driver import Operation

if TYPE_CHECKING:
    from rota.testing.harness import Harness
    from rota.testing.matching import Wanted


class ExpectedJob:
    """The job that a block must enqueue; see `Harness.expect_enqueued`."""

    def __init__(self, harness: Harness, wanted: Wanted) -> None:
        self._harness = harness
        self._wanted = wanted
        self._last = 0
        self._job: Job | None = None

    @property
    def job(self) -> Job:
        """The job, after the block."""
        assert self._job is not None, "the block has not ended"
        return self._job

    def __enter__(self) -> Self:
        self._last = self._harness._run(_find_last())
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is None:
            self._job = self._harness._run(self._check())

    async def __aenter__(self) -> Self:
        self._last = await self._harness._arun(_find_last())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is None:
            self._job = await self._harness._arun(self._check())

    def _check(self) -> Operation[Job]:
        wanted = self._wanted
        for job in (yield from find_jobs(wanted)):
            if job.id > self._last and not wanted.find_differences(job):
                return job
        raise AssertionError(
            f"the block enqueued no job of type {wanted.describe()}; of those that it enqueued "
            f"{(yield from self._harness._explain(wanted, after=self._last))}"
        )


def find_jobs(wanted: Wanted) -> Operation[list[Job]]:
    """Find the jobs of a type, by any of its names and in any status; oldest first."""
    jobs: list[Job] = []
    for name in wanted.names:
        jobs += yield from ops.find(job_type=name, limit=LIST_MAX)
    return sorted(jobs, key=lambda job: job.id)


def _find_last() -> Operation[int]:
    """Return the id of the newest job; 0: there is none."""
    newest = yield from ops.find(limit=1)
    return newest[0].id if newest else 0
