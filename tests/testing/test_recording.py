"""`make_context`: a context for a plain unit test."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import rota
from rota.testing import make_context
from tests.support.rules import rule

jobs = rota.Jobs()


@jobs.job("import", takes_context=True, queue="slow")
def import_rows(context: rota.Context, count: int) -> int:
    with context.effect("mail:1") as effect:
        if not effect.done:
            effect.result = "m-1"
    total = context.step("count", lambda: count)
    context.progress(1, total, "begun")
    context.raise_if_cancelled()
    assert rota.context() is context
    return total


def test_a_handler_is_called_as_a_function_with_what_it_tells() -> None:
    with make_context(import_rows.new(3), meta={"tenant": "a"}, attempt=2, state="pool") as context:
        assert import_rows(context, 3) == 3
    [report] = context.reports
    assert (report.done, report.total, report.note) == (1, 3, "begun")
    assert context.done_effects == ["mail:1", "count"]
    job = context.job
    assert (job.job_type, job.queue, job.payload) == ("import", "slow", {"count": 3})
    assert (job.attempts, job.meta, context.state) == (2, {"tenant": "a"}, "pool")
    with pytest.raises(rota.UsageError):
        rota.context()


async def test_an_async_handler_too() -> None:
    async def upper(text: str) -> str:
        return text.upper()

    context = make_context(scheduled_for=datetime(2026, 1, 14, tzinfo=UTC))
    async with context.effect("mail:1") as effect:
        assert not effect.done
    assert await context.step("upper", upper, "a") == "A"
    assert context.scheduled_for == datetime(2026, 1, 14, tzinfo=UTC)


@rule("M72")
def test_a_context_says_what_came_of_the_batch_that_its_job_follows() -> None:
    ended = rota.records.BatchEnd(id=1, total=9, succeeded=6, dead=2, cancelled=1)
    context = make_context(ended_batch=ended, meta={"tenant": "a"})
    assert context.ended_batch == ended
    assert context.ended_batch.failed == 3
    assert context.job.meta is not None
    assert context.job.meta["tenant"] == "a"
    with pytest.raises(rota.UsageError, match="follows no batch"):
        _ = make_context().ended_batch


def test_a_cancelled_context_stops_its_handler() -> None:
    context = make_context()
    context.cancel("enough")
    with pytest.raises(rota.AttemptCancelled, match="enough"):
        import_rows(context, 3)


def test_nothing_can_finish_a_job_that_is_none() -> None:
    with (
        pytest.raises(rota.UsageError, match="only a worker can finish"),
        make_context().transaction(),
    ):
        pass
    with pytest.raises(rota.UsageError, match="not 'import'"):
        make_context("import")  # type: ignore[arg-type]
