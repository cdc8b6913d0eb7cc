"""Between a claim and a handler's first step time can pass; then it does not begin."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota.observe.events import JobHandedBack, JobSucceeded
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows


@rule("M31", "M33")
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "plain"])
async def test_a_handler_does_not_begin_when_its_lease_ran_out_while_its_payload_was_read(
    database: str, connection: Connection, in_a_thread: bool
) -> None:
    jobs = rota.Jobs()
    begun: list[int] = []
    read: list[int] = []

    def slowly(payload: dict[str, Any]) -> dict[str, Any]:
        read.append(1)
        if len(read) == 1:
            # It takes more than three quarters of the lease, and less than all of it.
            hand.worker.attempts[job].claimed_at -= 96
        return payload

    async def handler(n: int) -> None:
        begun.append(n)

    def plain(n: int) -> None:
        begun.append(n)

    jobs.job("slow to read", lease="2m", version=2, upgrade={1: slowly})(
        plain if in_a_thread else handler
    )
    job = put(connection, "slow to read", n=7)
    connection.execute("update rota.job set payload_version = 1")
    # A listener that starts would make the worker renew the lease.
    async with Hand(database, jobs, notify=False) as hand:
        back = await hand.heard(JobHandedBack, job=job)
        assert "before it began" in back.why
        await hand.heard(JobSucceeded, job=job)
    assert (begun, len(read)) == ([7], 2)
    assert rows(connection, "select attempts, losses, claims from rota.jobs") == [(1, 0, 3)]
