"""A job's life as a picture, and what the job belongs to."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota.dashboard import Access
from rota.dashboard.life import DRAWN_MAX, LEAST, draw_life, list_parts, share, sum_parts
from rota.model.job import Status, WaitReason
from rota.records import AttemptRecord
from tests.dashboard.conftest import PREFIX, Serve
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


@rule("M72", "M87")
def test_a_page_of_a_batch_says_how_far_it_is_and_cancels_the_rest(
    app: rota.App, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet = app.types["greet"]
    made = app.batch([greet.new(1, "ok"), greet.new(2, "dies")], then=greet.new(9, "then"))
    app.drain()
    inner = app.batch([greet.using(delay="1h").new(number, "x") for number in (3, 4)]).id
    site = serve()
    listed = site.get("/batches").text
    assert f'href="{PREFIX}/batches/{made.id}"' in listed
    assert f"batch {inner}: 2 live of 2" in listed
    page = site.get(f"/batches/{made.id}").text
    assert f"batch {made.id}: 1 succeeded, 1 dead of 2" in page and "Cancel what" not in page
    wanted = {"accept": "application/json"}
    facts = site.get(f"/batches/{inner}", headers=wanted).json()
    assert facts["members"] == {"queued": 2} and facts["batch"]["total"] == 2
    path = f"/batches/{inner}/cancel"
    assert site.post(path, why="").status_code == 400
    looks = serve(authorize=lambda scope: Access("bo", frozenset({"retry"})))
    assert looks.post(path, why="x").status_code == 403
    with monkeypatch.context() as only:
        only.setattr("rota.dashboard.actions.CANCEL_MAX", 1)
        assert "in a shell" in site.get(f"/batches/{inner}").text + site.post(path, why="x").text
    assert app.batches.get(inner).cancelled == 0
    assert site.post(path, why="not wanted", back=f"/batches/{inner}").status_code == 303
    assert app.batches.get(inner).cancelled == 2
    assert {entry.why for entry in app.jobs.log()} == {"not wanted"}
    assert site.get("/batches/999").status_code == 404


@rule("M72", "M85")
def test_the_page_of_a_job_leads_to_its_batches_what_follows_and_what_it_waits_for(
    app: rota.App, serve: Serve
) -> None:
    greet = app.types["greet"]

    @app.job(takes_context=True)
    def collect(ctx: rota.Context) -> None:
        if not ctx.results:
            raise rota.WaitFor([greet.enqueue(number, "ok") for number in range(30, 60)])

    app.sync()
    outer = app.batch([greet.using(delay="1h").new(1, "ok")])
    batch = app.batch(
        [greet.new(2, "ok"), greet.new(3, "dies"), greet.new(4, "ok")],
        then=greet.new(9, "then"), parent=outer.id,
    )  # fmt: skip
    waits = collect.enqueue().id
    app.drain()
    dead = batch.jobs[1].id
    again = app.retry(dead, why="mended").id
    site = serve()

    def read_tree(path: str) -> list[str]:
        [tree] = re.findall(r'<ul class="tree">.*</ul>', site.get(path).text, re.S)
        lines = re.sub("<svg.*?</svg>|<[^>]+>", "", tree).splitlines()
        return [" ".join(line.split()) for line in lines if line.strip()]

    then = app.batches.get(batch.id).then_job
    assert read_tree(f"/jobs/{dead}") == [
        f"batch {outer.id} 1 of 2", f"batch {batch.id} 2 of 3", f"job {dead} greet dead",
        f"requeued as job {again} greet queued", "and 2 more", f"then job {then} greet succeeded",
    ]  # fmt: skip
    assert read_tree(f"/jobs/{then}")[1] == f"follows batch {batch.id} 2 of 3"
    assert f"batch {batch.id} 2 of 3" in read_tree(f"/batches/{outer.id}")
    waited = read_tree(f"/jobs/{waits}")
    assert waited[1].startswith("waited for job ") and waited[-1] == "and 10 more jobs"
