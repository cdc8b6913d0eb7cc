from __future__ import annotations
import asyncio
import rota
from rota.events import *
from tests.worker.hand import Hand
from tests.worker.table import *
async def test_swallow(database, connection):
    jobs = rota.Jobs()
    @jobs.job("x", timeout="0.3s")
    async def x() -> None:
        while True:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                pass
    @jobs.job("late", timeout="0.3s")
    async def late() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            pass
        return "fine"
    a, b = put(connection, "x"), put(connection, "late")
    async with Hand(database, jobs, grace_s=0.1) as hand:
        await asyncio.sleep(2.5)
        print(rows(connection, "select id, status, error_type, result from rota.jobs order by id"))
    print(rows(connection, "select id, status, error_type, result from rota.jobs order by id"))
    for t in asyncio.all_tasks():
        if "_attempt" in repr(t): print("left", t)
    assert 0
