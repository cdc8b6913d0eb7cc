"""A database that refuses what a gate asks: other jobs run, and those of the gate come again."""

from __future__ import annotations

import pytest

import rota
from rota.observe.events import JobHandedBack, JobSucceeded
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, put_many


def _both() -> rota.Jobs:
    jobs = rota.Jobs()

    async def nothing() -> None: ...

    limit = rota.RateLimit("smtp", 20, per="1s", burst=1)
    jobs.job("mail", rate_limit=limit)(nothing)
    jobs.job("call", breaker=rota.Breaker("shop"))(nothing)
    jobs.job("plain")(nothing)
    return jobs


@rule("M62", "M63")
@pytest.mark.parametrize(
    ("job_type", "function"), [("mail", "limit_reserve"), ("call", "breaker_look")]
)
async def test_jobs_whose_gate_cannot_be_asked_hold_back_no_others(
    database: str, connection: Connection, job_type: str, function: str
) -> None:
    connection.execute(f"alter function rota.{function} rename to gone".encode())
    put_many(connection, job_type, 50)
    plain = [put(connection, "plain") for _ in range(5)]
    async with Hand(database, _both(), slots=2) as hand:
        for job in plain:
            await hand.heard(JobSucceeded, job=job)
        back = await hand.heard(JobHandedBack)
        assert f"function rota.{function}" in back.why
        connection.execute(f"alter function rota.gone rename to {function}".encode())
        await hand.heard(JobSucceeded, 55, timeout_s=40)


@rule("M62")
async def test_a_gate_that_cannot_read_news_still_lets_jobs_begin(
    database: str, connection: Connection
) -> None:
    connection.execute("alter function rota.limit_stamps rename to gone")
    put_many(connection, "mail", 30)
    async with Hand(database, _both()) as hand:
        await hand.heard(JobSucceeded, 30, timeout_s=20)
