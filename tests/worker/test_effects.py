"""Effects: what a handler did is known to its next attempt."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest

import rota
from tests.docs.reader import read_page
from tests.support.rules import rule
from tests.worker.attempts import Attempts
from tests.worker.table import Connection, expire_leases, put, status

PAGE = read_page("effects.md")


def promised() -> list[tuple[str, dict[str, tuple[int, str]]]]:
    """The table of the page: where an attempt may end, and what comes of that by policy."""
    header, *lines = re.findall(r"^\| (?:the first|before the|after the).*\|$", PAGE, re.MULTILINE)
    policies = re.findall(r'"(\w+)"', header)
    table = []
    for line in lines:
        place, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        said = [re.fullmatch(r"sent (\d) times?, (\w+)", cell) for cell in cells]
        ends = [(int(one[1]), one[2]) for one in said if one is not None]
        table.append((place, dict(zip(policies, ends, strict=True))))
    return table


@rule("M52")
@pytest.mark.parametrize("policy", ["dead", "skip", "repeat"])
async def test_an_attempt_that_ends_at_any_step_does_what_the_page_promises(
    database: str, connection: Connection, policy: rota.records.IfUncertain
) -> None:
    sent: list[str] = []

    def end_after(steps: int, ctx: rota.Context) -> None:
        """End as a killed process does: nothing is done after so many steps."""
        block = ctx.effect(f"mail:{ctx.job.id}", if_uncertain=policy)
        deliver, leave = partial(sent.append, "m-1"), partial(block.__exit__, None, None, None)
        for step in (block.__enter__, deliver, leave)[:steps]:
            step()

    def sends(ctx: rota.Context) -> None:
        with ctx.effect(f"mail:{ctx.job.id}", if_uncertain=policy) as effect:
            if not effect.done:
                sent.append("m-1")

    async with Attempts(database, connection, sends) as attempts:
        for steps, (place, ends) in enumerate(promised()):
            sent.clear()
            job = put(connection, "sends")
            [first] = attempts.claim()
            await asyncio.to_thread(end_after, steps, attempts.make_context(first))
            expire_leases(connection)
            connection.execute("select rota.job_reap('-infinity', 100)")
            await attempts.run_all()
            assert (len(sent), status(connection, job)) == ends[policy], place
    assert steps == 3
