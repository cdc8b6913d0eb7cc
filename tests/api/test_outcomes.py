"""What becomes of a job that its handler ends by a word of its own, by its result, or by an error:
read from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def raising(error: BaseException) -> Callable[[], None]:
    def handler() -> None:
        raise error

    return handler


def returning(value: object) -> Callable[[], object]:
    return lambda: value


def run_each(app: rota.App, handlers: Mapping[str, Callable[[], Any]]) -> dict[str, int]:
    """Run a job of each handler once, in one drain; return the ids by the names."""
    types = {name: app.job(name)(handler) for name, handler in handlers.items()}
    ids = {name: job_type.using(key="the key").enqueue().id for name, job_type in types.items()}
    app.drain()
    return ids


def read_facts(row: Mapping[str, Any], *columns: str) -> tuple[Any, ...]:
    return tuple(row[column] for column in columns)


# Said by the handler


@rule("M11", "M40", "M51")
@pytest.mark.parametrize("say", [raising, returning])
def test_a_word_of_the_handler_decides_whether_it_is_raised_or_returned(
    app: rota.App, rows: Rows, say: Callable[[Any], Any]
) -> None:
    words = {
        "retry": rota.Retry("busy", after="90s"),
        "snooze": rota.Snooze("10m", "not yet"),
        "dead": rota.Dead("the account was deleted"),
        "cancel": rota.Cancel("no longer wanted"),
    }
    ids = run_each(app, {name: say(word) for name, word in words.items()})
    jobs = {name: rows.job(id_) for name, id_ in ids.items()}
    columns = ("status", "attempts", "last_error", "verdict")
    assert {name: read_facts(job, *columns) for name, job in jobs.items()} == {
        "retry": ("failed", 1, "busy", "transient"),
        "snooze": ("queued", 0, None, None),
        "dead": ("dead", 1, "the account was deleted", "fatal"),
        "cancel": ("cancelled", 1, "no longer wanted", None),
    }
    assert jobs["retry"]["wait_s"] == pytest.approx(90)
    assert jobs["snooze"]["wait_s"] == pytest.approx(600)
    ends = {name: read_facts(job, "failed_at", "finished_at") for name, job in jobs.items()}
    assert [at is None for at in ends["dead"]] == [False, True]
    assert ends["cancel"][1] is not None
    attempts = {
        name: [read_facts(row, "outcome", "message", "verdict_rule") for row in rows.attempts(id_)]
        for name, id_ in ids.items()
    }
    assert attempts["retry"] == [("failed", "busy", "raised Retry")]
    assert attempts["snooze"] == []
    assert [outcome for outcome, _, _ in attempts["dead"]] == ["dead"]
    assert rows.keys() == [(name, "the key", ids[name]) for name in ("dead", "retry", "snooze")]
    assert app.types["cancel"].using(key="the key").enqueue().created


@rule("M40")
def test_what_runs_again_lies_at_least_a_second_ahead(app: rota.App, rows: Rows) -> None:
    words = {"at once": rota.Retry(after="0s"), "snooze": rota.Snooze("0s")}
    ids = run_each(app, {name: raising(word) for name, word in words.items()})
    assert min(rows.job(id_)["wait_s"] for id_ in ids.values()) >= 1


# Results


@rule("M13")
def test_a_result_that_cannot_be_stored_is_left_out_with_a_warning_and_the_job_succeeds(
    app: rota.App, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    results = {
        "a object cannot be stored as JSON": object(),
        "nan cannot be stored": float("nan"),
        "inf cannot be stored": {"a": [float("inf")]},
        "larger than 65,536 bytes": "x" * 100_000,
        "NUL": "a\0b",
        "surrogate": "\ud800",
        "key": {(1, 2): 3},
    }
    ids = run_each(app, {why: returning(result) for why, result in results.items()})
    warnings = warnings_of(caplog)
    for why, id_ in ids.items():
        assert read_facts(rows.job(id_), "status", "result", "last_error") == (
            "succeeded",
            None,
            None,
        )
        [said] = [warning for warning in warnings if warning.startswith(f"job {id_} ")]
        assert "its result is not kept" in said and why in said.partition("is not kept")[2], said


# Errors


@rule("M41", "M43")
def test_an_error_leaves_verdict_rule_type_code_and_stack_on_its_attempt(
    app: rota.App, rows: Rows
) -> None:
    app.job("fatal", fatal_on=(Refused,))(raising(Refused(503)))
    fatal = app.types["fatal"].enqueue().id
    id_ = run_each(app, {"work": raising(Refused(503))})["work"]

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
    assert read_facts(attempt, "outcome", "release", "attempt", "claim") == (
        "failed",
        "unknown",
        1,
        1,
    )
    assert attempt["started_at"] <= attempt["finished_at"] == job["failed_at"]
    assert attempt["next_run_at"] == job["run_at"]
    assert 7.5 <= attempt["wait_s"] <= 12.5  # the default: 10 s, give or take a quarter
    dead = read_facts(rows.job(fatal), "status", "verdict_rule", "response_code")
    assert dead == ("dead", "fatal_on Refused", 503)
