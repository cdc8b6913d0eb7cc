"""What becomes of a job that its handler ends by a word of its own, by its result, or by an error:
read from the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rota
from tests.api.rows import Rows, warnings_of
from tests.support.rules import rule


class Refused(Exception):
    """An error such as an HTTP client raises."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"the server said {status_code}")
        self.status_code = status_code


def ended(app: rota.App, handler: Callable[[], Any], **options: Any) -> int:
    """Run a job with this handler once; return its id."""
    job_type = app.job("work", **options)(handler)
    enqueued: rota.Enqueued = job_type.using(key="the key").enqueue()
    app.drain()
    return enqueued.id


def raising(error: BaseException) -> Callable[[], None]:
    def handler() -> None:
        raise error

    return handler


def returning(value: object) -> Callable[[], object]:
    return lambda: value


# Said by the handler


@rule("M11", "M40")
@pytest.mark.parametrize("say", [raising, returning])
def test_a_retry_is_charged_and_lies_as_far_ahead_as_it_says(
    app: rota.App, rows: Rows, say: Callable[[Any], Any]
) -> None:
    id_ = ended(app, say(rota.Retry("busy", after="90s")))

    job = rows.job(id_)
    assert (job["status"], job["attempts"], job["last_error"], job["verdict"]) == (
        "failed",
        1,
        "busy",
        "transient",
    )
    assert job["wait_s"] == pytest.approx(90)
    [attempt] = rows.attempts(id_)
    assert (attempt["outcome"], attempt["message"], attempt["verdict_rule"]) == (
        "failed",
        "busy",
        "raised Retry",
    )


@rule("M40")
@pytest.mark.parametrize(
    "outcome", [rota.Retry(after="0s"), rota.Snooze("0s"), rota.Retry(after="1ms")]
)
def test_what_runs_again_lies_at_least_a_second_ahead(
    app: rota.App, rows: Rows, outcome: rota.Retry | rota.Snooze
) -> None:
    assert rows.job(ended(app, raising(outcome)))["wait_s"] >= 1


@rule("M42")
def test_a_retry_beyond_max_attempts_is_dead(app: rota.App, rows: Rows) -> None:
    job = rows.job(ended(app, raising(rota.Retry("busy")), max_attempts=1))

    assert (job["status"], job["attempts"], job["last_error"]) == ("dead", 1, "busy")


@rule("M11")
@pytest.mark.parametrize("say", [raising, returning])
def test_a_snooze_is_not_charged(app: rota.App, rows: Rows, say: Callable[[Any], Any]) -> None:
    id_ = ended(app, say(rota.Snooze("10m", "not yet")))

    job = rows.job(id_)
    assert (job["status"], job["attempts"], job["claims"], rows.attempts(id_)) == (
        "queued",
        0,
        2,
        [],
    )
    assert job["wait_s"] == pytest.approx(600)
    assert rows.keys() == [("work", "the key", id_)]


@rule("M11", "M51")
@pytest.mark.parametrize("say", [raising, returning])
def test_dead_gives_up_at_once_and_keeps_the_key(
    app: rota.App, rows: Rows, say: Callable[[Any], Any]
) -> None:
    id_ = ended(app, say(rota.Dead("the account was deleted")))

    job = rows.job(id_)
    assert (job["status"], job["attempts"], job["last_error"]) == (
        "dead",
        1,
        "the account was deleted",
    )
    assert job["failed_at"] is not None and job["finished_at"] is None
    assert [attempt["outcome"] for attempt in rows.attempts(id_)] == ["dead"]
    assert rows.keys() == [("work", "the key", id_)]


@rule("M11", "M51")
@pytest.mark.parametrize("say", [raising, returning])
def test_cancel_ends_the_job_says_why_and_frees_its_key(
    app: rota.App, rows: Rows, say: Callable[[Any], Any]
) -> None:
    id_ = ended(app, say(rota.Cancel("no longer wanted")))

    job = rows.job(id_)
    assert (job["status"], job["last_error"], job["result"]) == (
        "cancelled",
        "no longer wanted",
        None,
    )
    assert job["finished_at"] is not None
    assert rows.keys() == []
    again = app.enqueue(app.types["work"].using(key="the key").new())
    assert again.created


# Results


@rule("M13")
@pytest.mark.parametrize("value", [{"id": 5, "to": ["a"]}, [1, 2], "text", 0, False, 1.5])
def test_what_a_handler_returns_is_its_result(app: rota.App, rows: Rows, value: object) -> None:
    id_ = ended(app, returning(value))

    assert (rows.job(id_)["status"], rows.job(id_)["result"]) == ("succeeded", value)
    assert app.get(id_).result == value
    assert rows.keys() == [("work", "the key", id_)]


@rule("M13")
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "a object cannot be stored as JSON"),
        (float("nan"), "nan cannot be stored"),
        ({"a": [float("inf")]}, "inf cannot be stored"),
        ("x" * 100_000, "larger than 65,536 bytes"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ({(1, 2): 3}, "key"),
    ],
)
def test_a_result_that_cannot_be_stored_is_left_out_with_a_warning_and_the_job_succeeds(
    app: rota.App, rows: Rows, caplog: pytest.LogCaptureFixture, value: object, why: str
) -> None:
    job = rows.job(ended(app, returning(value)))

    assert (job["status"], job["result"], job["last_error"]) == ("succeeded", None, None)
    [warning] = warnings_of(caplog)
    assert "its result is not kept" in warning and why in warning


# Errors


@rule("M41", "M43")
def test_an_error_leaves_verdict_rule_type_code_and_stack_on_its_attempt(
    app: rota.App, rows: Rows
) -> None:
    id_ = ended(app, raising(Refused(503)))

    expected = {
        "error_type": f"{__name__}.Refused",
        "verdict": "transient",
        "verdict_rule": "status 503",
        "response_code": 503,
    }
    [attempt], job = rows.attempts(id_), rows.job(id_)
    assert expected.items() <= attempt.items() and expected.items() <= job.items()
    assert (attempt["message"], job["last_error"]) == ("the server said 503", "the server said 503")
    assert "in handler" in attempt["stack"] and "executor.py" not in attempt["stack"]
    assert (attempt["outcome"], attempt["release"], attempt["attempt"], attempt["claim"]) == (
        "failed",
        "unknown",
        1,
        1,
    )
    assert attempt["started_at"] <= attempt["finished_at"] == job["failed_at"]
    assert attempt["next_run_at"] == job["run_at"]
    assert 7.5 <= attempt["wait_s"] <= 12.5  # the default: 10 s, give or take a quarter


@rule("M41")
@pytest.mark.parametrize(
    ("error", "options", "status", "verdict_rule"),
    [
        (Refused(404), {}, "dead", "status 404"),
        (Refused(429), {}, "failed", "status 429"),
        (Refused(404), {"retry_on": (Refused,)}, "failed", "retry_on Refused"),
        (TimeoutError(), {}, "failed", "timeout"),
        (TimeoutError(), {"fatal_on": (OSError,)}, "dead", "fatal_on OSError"),
        (
            FileNotFoundError(),
            {"fatal_on": (OSError,), "retry_on": (FileNotFoundError,)},
            "failed",
            "retry_on FileNotFoundError",
        ),
        (KeyError("a"), {}, "failed", "unknown error"),
        (
            KeyError("a"),
            {"fatal_on": (LookupError,), "retry_on": (LookupError,)},
            "dead",
            "fatal_on LookupError",
        ),
    ],
)
def test_the_most_specific_class_decides_then_the_defaults(
    app: rota.App,
    rows: Rows,
    error: Exception,
    options: dict[str, Any],
    status: str,
    verdict_rule: str,
) -> None:
    job = rows.job(ended(app, raising(error), **options))

    assert (job["status"], job["verdict_rule"]) == (status, verdict_rule)


@rule("M40", "M42")
def test_a_job_that_goes_on_failing_is_dead_after_max_attempts_with_a_row_for_each(
    app: rota.App, rows: Rows
) -> None:
    id_ = ended(
        app, raising(ValueError("no")), max_attempts=3, retry=rota.Delays("1s", "5m", jitter=0)
    )
    for _ in range(3):
        rows.make_all_due()
        app.drain()

    job = rows.job(id_)
    assert (job["status"], job["attempts"], job["max_attempts"]) == ("dead", 3, 3)
    assert [
        (attempt["attempt"], attempt["outcome"], attempt["wait_s"])
        for attempt in rows.attempts(id_)
    ] == [
        (1, "failed", pytest.approx(1)),
        (2, "failed", pytest.approx(300)),
        (3, "dead", None),
    ]


@rule("M42")
def test_max_attempts_of_the_job_wins_over_that_of_its_type(app: rota.App, rows: Rows) -> None:
    job_type = app.job("work", max_attempts=5)(raising(ValueError("no")))
    id_ = job_type.using(max_attempts=1).enqueue().id
    app.drain()

    assert (rows.job(id_)["status"], rows.job(id_)["max_attempts"]) == ("dead", 1)


@rule("M35", "M41")
def test_an_attempt_that_runs_over_its_timeout_fails_and_is_tried_again(
    app: rota.App, rows: Rows
) -> None:
    async def handler() -> None:
        import asyncio

        await asyncio.Event().wait()

    job = rows.job(ended(app, handler, timeout="50ms"))

    assert (job["status"], job["error_type"], job["verdict_rule"]) == (
        "failed",
        "rota.errors.AttemptTimeout",
        "timeout",
    )


@rule("M36")
def test_an_expired_job_is_never_started_and_dead_with_the_reason(
    app: rota.App, rows: Rows
) -> None:
    started = []
    job_type = app.job("work", expires="1h")(lambda: started.append(1))
    late, in_time = job_type.enqueue().id, job_type.using(expires="3h").enqueue().id
    rows.move_clock(hours=2)
    app.drain()

    job = rows.job(late)
    assert (job["status"], job["attempts"], job["error_type"], job["verdict_rule"]) == (
        "dead",
        0,
        "Expired",
        "expired",
    )
    assert "not started before expires_at" in job["last_error"] and job["started_at"] is None
    assert (rows.job(in_time)["status"], len(started)) == ("succeeded", 1)
