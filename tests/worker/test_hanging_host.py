"""A host that hangs, and one that answers, in the same queue of a real worker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tests.support.wait import eventually
from tests.support.web import serving
from tests.worker.conftest import StartWorker
from tests.worker.table import Connection, over, rows, value

SLOTS = 10
TIMEOUT_S = 2.0
"""Of the handler, in tests.worker.endpoints."""
LIVE = 100
HANGING = 10_000


def enqueue(connection: Connection, live: str, hanging: str | None) -> None:
    """Enqueue the live ones, each with a hundred of the other host before it."""
    connection.execute(
        "insert into rota.job (queue, job_type, priority, payload) "
        "select 'default', 'call', 0, jsonb_build_object('url', url) "
        "from generate_series(1, %s) n, "
        "lateral (select %s from generate_series(1, %s) union all select %s) each (url)",
        [LIVE, hanging, HANGING // LIVE if hanging else 0, live],
    )


def measure_waits(connection: Connection) -> list[tuple[Any, ...]]:
    """Return of each live one its wait, from the breaker's opening on if that was later, and
    whether it started after that; then forget them."""
    eventually(lambda: over(connection) == LIVE, 60, what="all live ones are over")
    waits = rows(
        connection,
        "select extract(epoch from h.started_at - greatest(h.run_at, b.opened_at))::float8, "
        "extract(epoch from h.started_at - h.run_at)::float8, h.started_at >= b.opened_at "
        "from rota.job_history h left join rota.breaker b on b.state <> 'closed' order by 1",
    )
    connection.execute("delete from rota.job_history")
    return waits


@rule("M63")
@pytest.mark.slow
@pytest.mark.system
def test_ten_thousand_jobs_to_a_host_that_hangs_hardly_delay_a_hundred_to_a_live_one(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    with serving() as hanging, serving() as live:
        hanging.status = None
        live.pause_s = 0.2
        start_worker(database, module="tests.worker.endpoints", concurrency=SLOTS)
        enqueue(connection, live.url, None)
        alone_s = measure_waits(connection)[LIVE * 95 // 100][0]

        enqueue(connection, live.url, hanging.url)
        waits = measure_waits(connection)
    before = [whole_s for _, whole_s, is_after in waits if not is_after]
    assert max(before, default=0.0) <= TIMEOUT_S + 1
    after = [wait_s for wait_s, _, is_after in waits if is_after]
    assert after[len(after) * 95 // 100] <= 2 * (alone_s + TIMEOUT_S)
    assert len(hanging.asked) <= 2 * SLOTS
    hand_back = "select count(*) from rota.job where waits_for is not null and attempts = 0"
    eventually(lambda: value(connection, hand_back) == HANGING - len(hanging.asked))
