"""Rate limits as code declares them, and `app.limits.take(…)`."""

from __future__ import annotations

import pickle
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.declare.key import PlainKey, check_plain_key
from rota.errors import DeclarationError, LimitNotFound, UsageError
from tests.support.rules import rule


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "two words"}, "has no blanks"),
        ({"name": ""}, "a rate limit's name must be"),
        ({"limit": 0}, "limit must be a whole number from 1 to 1,000,000, not 0"),
        ({"per": 60}, "per must be"),
        ({"per": "50ms"}, "per must be at least 100 ms"),
        ({"burst": 11}, "burst must be a whole number from 1 to 10, not 11"),
        ({"key": "account"}, "key must be a text with names"),
        ({"burst": 2, "cost": 3}, "from 1 to 2, not 3: a job costs the burst at most"),
        ({"limit": 100, "per": "366d", "burst": 100}, "more than a hundred years"),
    ],
)
def test_a_limit_that_cannot_be_says_why(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        rota.RateLimit(**{"name": "smtp", "limit": 10, "per": "1s", **arguments})


@pytest.mark.parametrize(("limit", "burst"), [(1, 1), (9, 1), (100, 10), (1_000, 100)])
def test_by_default_a_tenth_of_a_limit_may_start_at_once(limit: int, burst: int) -> None:
    assert rota.RateLimit("smtp", limit, per="1m").burst_max == burst


def test_two_types_that_share_a_limit_must_agree_on_its_figures() -> None:
    jobs, others = rota.Jobs(), rota.Jobs()
    jobs.job("a", rate_limit=rota.RateLimit("smtp", 10, per="1m"))(lambda: None)
    jobs.job("b", rate_limit=rota.RateLimit("smtp", 10, per="60s", burst=1))(lambda: None)
    others.job("c", rate_limit=rota.RateLimit("smtp", 20, per="1m"))(lambda: None)
    with pytest.raises(DeclarationError) as error:
        rota.App(jobs=[jobs, others])
    assert "rate limit 'smtp' is declared twice with different figures: 10 per 1m" in str(error)


@rule("M62")
def test_nothing_is_declared_if_two_types_disagree_on_a_limit(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    app = rota.App(database)
    app.job("mail", rate_limit=rota.RateLimit("smtp", 10, per="1m"))(lambda: None)
    app.job("report", rate_limit=rota.RateLimit("smtp", 20, per="1m"))(lambda: None)
    with pytest.raises(DeclarationError, match="rate limit 'smtp' is declared twice"):
        app.sync()
    assert connection.execute("select name from rota.job_type").fetchall() == []
    app.close()


def test_a_function_of_a_limit_takes_arguments_of_the_handler() -> None:
    jobs = rota.Jobs()
    limit = rota.RateLimit("smtp", 10, per="1m", key=lambda customer: customer)
    with pytest.raises(DeclarationError, match=r"rate_limit key function at .* takes 'customer'"):
        jobs.job("a", rate_limit=limit)(lambda account: None)
    with pytest.raises(DeclarationError, match=r"rate_limit must be a rota.RateLimit"):
        jobs.job("b", rate_limit=10)(lambda: None)  # type: ignore[call-overload]


@rule("M62")
async def test_a_web_process_takes_from_a_limit_before_any_worker_has_started(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    app = rota.App(database)
    app.job("mail", rate_limit=rota.RateLimit("smtp", 10, per="1h", burst=4))(lambda: None)
    assert [await app.limits.atake("smtp", 2) for _ in range(3)] == [True, True, False]
    with pytest.raises(LimitNotFound, match="no rate limit 'smpt'"):
        await app.limits.atake("smpt")
    with pytest.raises(UsageError, match="1 to 4 starts can be taken at once"):
        await app.limits.atake("smtp", 5)
    with pytest.raises(UsageError, match="rate limit 'smtp' has no keys"):
        await app.limits.atake("smtp", key="a")
    await app.aclose()


@rule("M62")
@pytest.mark.parametrize("key", [7, UUID("8f14e45f-ceea-467f-a8b1-0c7f5c0e2d11"), "anna"])
def test_a_key_is_taken_from_as_its_function_makes_it(database: str, key: PlainKey) -> None:
    app = rota.App(database)
    limit = rota.RateLimit("api", 10, per="1h", burst=1, key=lambda account: account)
    app.job("call", rate_limit=limit)(lambda account: None)
    assert [app.limits.take("api", key=given) for given in (key, str(key))] == [True, False]
    with pytest.raises(UsageError, match=r"key must be 1 to 255 printable .*, not 1\.5"):
        app.limits.take("api", key=1.5)  # type: ignore[arg-type]
    app.close()


def test_an_outcome_that_says_wait_travels_between_processes() -> None:
    outcome = pickle.loads(pickle.dumps(rota.RateLimited("429", retry_after="30s")))
    assert (outcome.reason, outcome.retry_after_s) == ("429", 30)
    assert rota.RateLimited(retry_after="10ms").retry_after_s == 1


ID = UUID("8f14e45f-ceea-467f-a8b1-0c7f5c0e2d11")


@rule("M62", "M63")
@pytest.mark.parametrize(("made", "key"), [("anna", "anna"), (7, "7"), (ID, str(ID))])
def test_a_text_an_integer_and_a_uuid_are_keys(made: Any, key: str) -> None:
    assert check_plain_key(made) == key


@rule("M62", "M63")
@pytest.mark.parametrize("made", [None, True, 1.5, "", "x" * 256, "two\nlines", object()])
def test_nothing_else_is_a_key(made: Any) -> None:
    with pytest.raises(rota.UsageError, match="what it returns"):
        check_plain_key(made)
