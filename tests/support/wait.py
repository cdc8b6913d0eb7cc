"""The one place where tests wait by looking again: for what happens in another process and sends no
signal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

Found = TypeVar("Found")

LOOK_EVERY_S = 0.02


def eventually(predicate: Callable[[], Found], timeout_s: float = 60, *, what: str = "") -> Found:
    """Call `predicate` until its answer is true, and return that answer.

    Raises AssertionError, with the last answer, when it is still not true after `timeout_s`.
    An exception of the predicate is passed on at once.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"not within {timeout_s:g} s: {what or predicate!r}; last answer: {answer!r}"
            )
        time.sleep(LOOK_EVERY_S)


async def aeventually(
    predicate: Callable[[], Found], timeout_s: float = 60, *, what: str = ""
) -> Found:
    """Do the same in a thread, while the loop goes on."""
    return await asyncio.to_thread(eventually, predicate, timeout_s, what=what)


def count_lock_waits(connection: psycopg.Connection[Any]) -> int:
    """How many sessions of the database wait for a lock; also within a transaction, which would
    see the same answer again."""
    connection.execute("select pg_stat_clear_snapshot()")
    [(count,)] = connection.execute(
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock'"
    ).fetchall()
    return int(count)
