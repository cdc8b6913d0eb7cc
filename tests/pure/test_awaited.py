"""Which jobs a job may wait for."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

import rota
from rota.model.awaited import META_KEY, find_fault
from rota.model.batch import Batch
from tests.support.job import make_job
from tests.support.rules import rule

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def job(id_: int, awaits: Any = None) -> rota.Job:
    meta = None if awaits is None else json.dumps({META_KEY: awaits, "trace": "t"})
    return make_job(id_, meta_json=meta)


@rule("M11")
@pytest.mark.parametrize(
    ("jobs", "ids"),
    [
        (5, (5,)),
        (rota.Enqueued(5, True, "queued"), (5,)),
        (job(5), (5,)),
        ([7, job(5), rota.Enqueued(6, False, "running"), 7], (7, 5, 6)),
        ({3: "a", 4: "b"}, (3, 4)),
    ],
    ids=["an id", "enqueued", "a job", "several", "keys"],
)
def test_a_wait_takes_ids_jobs_and_what_enqueue_returned(jobs: Any, ids: tuple[int, ...]) -> None:
    wait = rota.WaitFor(jobs, on_failure="wait")
    assert wait.jobs == ids
    again = pickle.loads(pickle.dumps(wait))
    assert (again.jobs, again.on_failure) == (ids, "wait")


BATCH = Batch(
    id=1, parent=None, total=1, succeeded=0, dead=0, cancelled=0, on_failure="continue",
    outcome=None, created_at=NOW, ended_at=None, then_at=None, then_job=None, then_error=None,
)  # fmt: skip


@rule("M11")
@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([], "there is no job to wait for"),
        (range(1, 1_002), "at most 1,000 jobs in all, not for 1,001"),
        (rota.records.NewBatch(1, []), "let the job that goes on follow the batch"),
        (BATCH, "let the job that goes on follow the batch"),
        ("5", "not '5'"),
        ([True], "not True"),
        ([0], "not 0"),
        ([2**63], "not 9223372036854775808"),
        (None, "not None"),
    ],
)
def test_what_is_no_job_is_refused(jobs: Any, says: str) -> None:
    with pytest.raises(rota.UsageError, match=says):
        rota.WaitFor(jobs)


def test_what_is_to_become_of_dead_jobs_is_one_of_two_words() -> None:
    with pytest.raises(rota.UsageError, match="'continue' or 'wait'"):
        rota.WaitFor(5, on_failure="skip")  # type: ignore[arg-type]


def result(id_: int, outcome: Any) -> rota.records.JobResult:
    return rota.records.JobResult(id_, id_, outcome, None)


@rule("M11")
@pytest.mark.parametrize(
    ("wanted", "on_failure", "told", "may"),
    [
        ([5], "continue", [], True),
        ([5], "continue", [result(5, "succeeded")], False),
        ([5], "continue", [result(5, "dead")], False),
        ([5, 6], "continue", [result(5, "succeeded")], True),
        ([5], "wait", [result(5, "dead")], True),
        ([5], "wait", [result(5, "archived")], False),
        ([5, 6], "wait", [result(5, "dead"), result(6, "gone")], True),
        ([9], "continue", [], False),
    ],
)
def test_a_job_waits_only_for_others_of_whose_end_it_was_not_told(
    wanted: list[int], on_failure: Any, told: list[rota.records.JobResult], may: bool
) -> None:
    assert (find_fault(job(9), wanted, on_failure, told) is None) is may


@rule("M11")
def test_all_waits_of_a_job_count_towards_its_limit() -> None:
    before = {"jobs": list(range(1, 501)), "before": list(range(501, 1_000))}
    waiting = job(5_000, before)
    assert find_fault(waiting, [1_000], "continue", []) is None
    assert find_fault(waiting, [1, 2, 1_000], "continue", []) is None
    assert "1,001" in str(find_fault(waiting, [1_000, 1_001], "continue", []))


@rule("M11")
@pytest.mark.parametrize("awaits", ["x", {"jobs": "x"}, {"jobs": [None]}, None, []])
def test_what_a_producer_wrote_there_counts_as_nothing(awaits: Any) -> None:
    assert find_fault(job(9, awaits), range(10, 1_010), "continue", []) is None
