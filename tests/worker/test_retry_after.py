"""When a job is retried whose error says when: the `Retry-After` of an answer, and `Retry` raised
from an error."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from tests.support.rules import rule
from tests.support.web import Web, serving
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows

POLICY = rota.Fixed("1h", jitter=0)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


def ask(web: Web) -> None:
    """Ask the server; its answer is the error that urllib makes of it."""
    try:
        urllib.request.urlopen(web.url, b"{}").close()
    except urllib.error.HTTPError as error:
        error.close()
        raise


async def work(database: str, handler: Callable[[], Any], **options: Any) -> None:
    """Run one job with this handler."""
    jobs = rota.Jobs()
    jobs.job("asks", retry=POLICY, **options)(handler)
    await Hand(database, jobs, drain=True).run()


def waits_s(connection: Connection) -> float:
    """Seconds from the end of the only attempt to the next."""
    [(found,)] = rows(
        connection,
        "select extract(epoch from j.run_at - a.finished_at)::float8 "
        "from rota.job j join rota.attempt a on a.job = j.id",
    )
    return round(float(found), 3)


@rule("M40", "M41")
@pytest.mark.parametrize(
    ("status", "headers", "expected_s"),
    [
        (429, {"retry-after": " 7 "}, 7),
        (503, {"Retry-After": "9999999"}, 86_400),
        (429, {}, 3_600),
        (503, {"Retry-After": "-5"}, 3_600),
    ],
)
async def test_an_answer_that_says_when_is_obeyed(
    database: str,
    connection: Connection,
    web: Web,
    status: int,
    headers: dict[str, str],
    expected_s: float,
) -> None:
    web.status, web.headers = status, headers
    put(connection, "asks")
    await work(database, lambda: ask(web))
    assert waits_s(connection) == expected_s


@pytest.mark.parametrize("wrong", [(99,), (600,), (True,), 404])
def test_what_is_no_error_and_no_status_code_is_refused(wrong: Any) -> None:
    with pytest.raises(rota.UsageError, match="exception classes and status codes"):
        rota.Jobs().job("asks", retry_on=wrong)


@rule("M41", "M43")
@pytest.mark.parametrize(
    ("outcome", "where", "message", "expected_s"),
    [
        (rota.Retry(), "failed", "HTTP Error 429: Too Many Requests", 7),
        (rota.Retry("busy", after="5m"), "failed", "busy: HTTP Error 429: Too Many Requests", 300),
        (rota.Dead("enough"), "dead", "enough: HTTP Error 429: Too Many Requests", None),
    ],
)
async def test_an_outcome_raised_from_an_error_keeps_what_the_error_was(
    database: str,
    connection: Connection,
    web: Web,
    outcome: rota.Retry | rota.Dead,
    where: str,
    message: str,
    expected_s: float | None,
) -> None:
    web.status, web.headers = 429, {"Retry-After": "7"}

    def try_it() -> None:
        try:
            ask(web)
        except urllib.error.HTTPError as error:
            raise outcome from error

    put(connection, "asks")
    await work(database, try_it)
    [(*kept, stack)] = rows(
        connection,
        "select j.status, a.error_type, a.message, a.response_code, a.verdict_rule, a.stack "
        "from rota.job j join rota.attempt a on a.job = j.id",
    )
    said = f"raised {type(outcome).__name__}"
    assert kept == [where, "urllib.error.HTTPError", message, 429, said]
    assert "in ask" in stack and "urlopen" in stack
    if expected_s is not None:
        assert waits_s(connection) == expected_s


@rule("M40", "M41")
def test_a_server_that_always_asks_for_a_short_wait_does_not_use_up_all_attempts() -> None:
    policy = rota.Exponential("10s", cap="1h", jitter=0)
    asked = [policy.delay_asked_for_s(1, attempt, 1, attempt) for attempt in range(1, 10)]
    assert asked == [1, 10, 20, 40, 80, 160, 320, 640, 1_280]
    assert policy.delay_asked_for_s(60, 2, 1, 2) == 60


@rule("M40", "M41")
def test_jobs_that_are_told_the_same_wait_do_not_come_back_at_once() -> None:
    policy = rota.Exponential("10s", jitter=0.25)
    waits = {policy.delay_asked_for_s(60, 1, job, 1) for job in range(1, 1_001)}
    assert len(waits) > 900 and min(waits) >= 60 and max(waits) <= 75


class Answer(Exception):
    def __init__(self, headers: Any, status_code: int = 429) -> None:
        super().__init__("no")
        self.status_code = status_code
        self.headers = headers


@rule("M41")
async def test_an_answer_in_a_group_is_obeyed_too(database: str, connection: Connection) -> None:
    async def asks() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    async def fails() -> None:
        raise Answer({"Retry-After": "7"})

    put(connection, "asks")
    await work(database, asks)
    assert waits_s(connection) == 7


@rule("M41")
async def test_a_retry_from_an_error_that_is_fatal_waits_as_its_server_asks(
    database: str, connection: Connection
) -> None:
    def asks() -> None:
        raise rota.Retry from Answer({"Retry-After": "7"}, 404)

    put(connection, "asks")
    await work(database, asks)
    assert waits_s(connection) == 7
