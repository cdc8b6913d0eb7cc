"""A job's life as a picture."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.dashboard.life import DRAWN_MAX, LEAST, draw_life, list_parts, share, sum_parts
from rota.model.job import Status, WaitReason
from rota.records import AttemptRecord
from tests.support.job import make_job
from tests.support.rules import rule

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def fail(number: int, began: float, ended: float, then: float | None, **more: Any) -> AttemptRecord:
    given: dict[str, Any] = dict.fromkeys(AttemptRecord.__struct_fields__)
    given |= {"attempt": number, "started_at": at(began), "finished_at": at(ended)}
    given |= {"outcome": "failed", "next_run_at": None if then is None else at(then)}
    return AttemptRecord(**given | more)


@rule("M85")
@pytest.mark.parametrize(
    ("job", "attempts", "kinds"),
    [
        (
            {"status": Status.SUCCEEDED, "started_at": at(14), "finished_at": at(15)},
            [],
            "later 10, due 4, succeeded 1",
        ),
        (
            {"status": Status.SUCCEEDED, "started_at": at(9), "finished_at": at(20)},
            # A person retried it before it was due.
            [fail(1, 2, 3, 4), fail(2, 5, 6, 60, outcome="queued")],
            "due 2, failed 1, later 1, due 1, given-back 1, later 3, succeeded 11",
        ),
        (
            {"status": Status.FAILED, "run_at": at(50)},
            [fail(1, 2, 3, 50)],
            "due 2, failed 1, later 27",
        ),
        (
            {"status": Status.QUEUED, "wait": WaitReason(at(12), "waits", "for a slot")},
            [],
            "later 10, due 2, held 18",
        ),
        ({"status": Status.RUNNING, "started_at": at(11)}, [], "later 10, due 1, running 19"),
        ({"status": Status.DEAD}, [fail(1, 2, 3, None, outcome="dead")], "due 2, failed 1"),
        ({"status": Status.CANCELLED, "finished_at": at(4)}, [], "later 4"),
        (
            {
                "status": Status.SUCCEEDED, "started_at": at(11), "finished_at": at(12),
                "meta_json": '{"rota.waits": {}}',
            },
            [],
            "held 10, due 1, succeeded 1",
        ),
    ],
)  # fmt: skip
def test_a_life_has_no_gap_and_says_what_the_job_did_in_each_part(
    job: dict[str, Any], attempts: list[AttemptRecord], kinds: str
) -> None:
    made = make_job(**{"created_at": at(0), "run_at": at(10), **job})
    parts = list_parts(made, attempts, at(30))
    assert ", ".join(f"{part.kind} {part.lasted_s / 60:g}" for part in parts) == kinds
    assert [part.begin for part in parts] == [at(0), *(part.end for part in parts[:-1])]


@rule("M85")
def test_the_shortest_part_is_seen_and_a_long_life_is_drawn_in_few_parts() -> None:
    widths = share([1, 1_000_000, 1, 500_000])
    assert min(widths) == LEAST and sum(widths) == pytest.approx(100)
    assert widths[1] / widths[3] == pytest.approx(2)
    attempts = [
        fail(number, number * 5 + 1, number * 5 + 2, number * 5 + 4) for number in range(99)
    ]
    parts = list_parts(make_job(created_at=at(0), run_at=at(700)), attempts, at(600))
    picture = draw_life(parts, is_live=True)
    assert picture.count("<rect") == DRAWN_MAX + 1
    assert f"{len(parts) - DRAWN_MAX} parts that are not drawn" in picture
    assert all(text in picture for _, text in sum_parts(parts))  # in words, and of all
