"""A worker's own connection."""

from __future__ import annotations

import asyncio
import sys

import pytest

from rota.errors import DatabaseUnavailable
from rota.runtime.loop import run_alone
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from tests.support.forked import python
from tests.support.rules import rule


@pytest.mark.nightly
@rule("M33", "M80")
def test_a_link_that_is_closed_while_it_waits_ends_the_wait_and_not_the_process(
    database: str,
) -> None:
    # In a process of its own: uvloop aborts the one in which a file is closed that it watches.
    with python(["-m", __spec__.name, database]) as process:
        assert process.wait(60) == 0


@rule("M33")
async def test_a_link_that_was_closed_while_it_was_lent_opens_another_connection(
    database: str,
) -> None:
    link = StoreLink(Database(database), "link")
    async with link.borrow() as lent:
        await link.close()
    assert lent.closed
    assert (await link.run(ops.read_clock())).utcoffset() is not None
    await link.close()
    assert link._connection is None


async def _close_while_it_waits(url: str) -> None:
    link, is_open, may_ask = StoreLink(Database(url), "link"), asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        async with link.borrow() as connection:
            is_open.set()
            await may_ask.wait()
            await connection.execute("select pg_sleep(60)")

    asking = asyncio.create_task(ask())
    await is_open.wait()
    may_ask.set()
    closing = asyncio.create_task(link.close())  # in the turn of the loop in which it asks
    with pytest.raises(DatabaseUnavailable):
        await asyncio.wait_for(asking, 30)
    await closing
    assert link._connection is None


async def _nothing() -> None: ...


if __name__ == "__main__":
    run_alone("test", _close_while_it_waits(sys.argv[1]), _nothing)
