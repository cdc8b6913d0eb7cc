"""Listeners and the log: what they hear, and that a failing listener harms no job."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import get_type_hints

import pytest

import rota
from rota.model.outcome import Failure
from rota.observe import events
from tests.api.rows import Rows
from tests.support.rules import rule


def test_a_listener_hears_of_a_dead_job_after_that_is_committed(app: rota.App, rows: Rows) -> None:
    heard: list[tuple[events.JobDead, str]] = []
    app.on(events.JobDead, lambda event: heard.append((event, rows.job(event.job)["status"])))

    @app.job("work", fatal_on=(ValueError,))
    async def work() -> None:
        raise ValueError("no")

    id_ = work.enqueue().id
    app.drain()

    [(event, status)] = heard
    assert (event.job, event.job_type, event.attempt, event.claim, status) == (
        id_,
        "work",
        1,
        1,
        "dead",
    )
    assert (event.failure.error_type, event.failure.message, event.failure.verdict_rule) == (
        "ValueError",
        "no",
        "fatal_on ValueError",
    )
    assert event.worker == rows.attempts(id_)[0]["worker"]


@rule("M84")
def test_each_step_of_a_job_is_one_line_in_the_log(
    app: rota.App, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rota")
    ends: dict[str, tuple[BaseException | None, int, str]] = {
        "succeeded": (None, logging.INFO, "succeeded in"),
        "failed": (ValueError("no"), logging.WARNING, "failed, retry in"),
        "dead": (rota.Dead("gone"), logging.ERROR, "dead: Dead: gone (raised Dead)"),
        "cancelled": (rota.Cancel("off"), logging.INFO, "cancelled: off"),
        "queued": (rota.Snooze("10s"), logging.INFO, "snoozed for 10.0 s"),
    }

    @app.job("work")
    async def work(status: str) -> None:
        if outcome := ends[status][0]:
            raise outcome

    ids = {status: work.enqueue(status).id for status in ends}
    app.drain()
    for status, (_, level, line) in ends.items():
        begins = f"job {ids[status]} work attempt 1: "
        lines = [
            (record.levelno, record.getMessage().removeprefix(begins))
            for record in caplog.records
            if record.getMessage().startswith(begins)
        ]
        assert [found[0] for found in lines] == [logging.DEBUG, level], status
        assert lines[0][1].startswith("claimed by ")
        assert lines[1][1].startswith(line)
        assert rows.job(ids[status])["status"] == status


SAMPLES: dict[object, object] = {
    bool: True,
    int: 12,
    float: 0.5,
    str: "words",
    int | None: None,
    float | None: None,
    str | None: None,
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    tuple[int, ...]: (12, 13),
    Failure: Failure("ValueError", "no", "fatal", "fatal_on ValueError"),
}
"""A value of each kind of field that events have."""


KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and not kind.__subclasses__()
]


@rule("M84")
def test_each_event_makes_its_line_of_its_fields() -> None:
    for kind in KINDS:
        hints = get_type_hints(kind)
        line = kind(**{name: SAMPLES[hints[name]] for name in kind.__struct_fields__}).text()
        assert line.isprintable() and not set(line) & set("{}"), line


def test_a_failing_listener_is_logged_and_harms_no_job(
    app: rota.App, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[events.JobSucceeded] = []

    def broken(event: events.Event) -> None:
        raise RuntimeError(f"{type(event).__name__} is too much")

    app.on(events.Event, broken)
    app.on(events.JobSucceeded, heard.append)
    app.job("work")(lambda: "done")
    ids = [app.types["work"].enqueue().id for _ in range(3)]
    report = app.drain()

    assert (report.succeeded, len(heard)) == (3, 3)
    assert [(rows.job(id_)["status"], rows.job(id_)["attempts"]) for id_ in ids] == [
        ("succeeded", 1)
    ] * 3
    assert "a listener for JobSucceeded failed; the job is not affected" in caplog.text
