"""Which workers are woken for jobs, and for how long they are known to wait."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.store import ops
from rota.store.statements import Statements
from tests.store.work import BEGINNING, Connection, Hand
from tests.support.rules import rule

WORKER = (
    "insert into rota.worker (name, host, pid, version, release, job_types, queues, heartbeat_at) "
    "values (%s, 'h', 1, '1', '1', '{}', '{}', now() - %s * interval '1 s')"
)


@pytest.fixture
def hand(connection: Connection) -> Hand:
    for name, silent_s in (("w1", 0), ("w2", 0), ("silent", 50)):
        connection.execute(WORKER.encode(), [name, silent_s])
    connection.execute(
        "insert into rota.queue (name, notify_until, waiting) "
        "values ('default', now() - interval '1 s', array['k w1', 'k silent'])"
    )
    return Hand(connection)


def waiting(connection: Connection) -> dict[str, set[str]]:
    return {
        name: set(peers)
        for name, peers in connection.execute("select name, waiting from rota.queue").fetchall()
    }


@rule("M33", "M81")
def test_a_worker_waits_once_and_one_that_is_silent_no_more(
    connection: Connection, hand: Hand
) -> None:
    for _ in range(2):
        hand.run(ops.request_notify("k w2", ["default", "other"], 60))
    assert waiting(connection) == {"default": {"k w1", "k w2"}, "other": {"k w2"}}
    assert connection.execute(
        "select bool_and(notify_until > now()), max(cardinality(waiting)) from rota.queue"
    ).fetchone() == (True, 2)


@rule("M81")
@pytest.mark.parametrize("how", ["leaves", "stops"])
def test_a_worker_that_waits_no_more_leaves_the_others_waiting(
    connection: Connection, hand: Hand, how: str
) -> None:
    hand.run(ops.request_notify("k w2", ["default"], 60))
    left = ops.request_notify("k w2", ["default"], 0) if how == "leaves" else ops.stop("w2")
    hand.run(left)
    assert "k w2" not in waiting(connection)["default"]
    assert "k w1" in waiting(connection)["default"]
    assert connection.execute("select notify_until > now() from rota.queue").fetchone() == (True,)


@rule("M33", "M81")
def test_a_job_that_comes_back_from_a_lost_worker_wakes_another(
    connection: Connection, second: Connection, hand: Hand
) -> None:
    hand.run(ops.request_notify("k w1", ["default"], 60))
    second.execute(f'listen "{Statements("rota").worker_channel("w1")}"'.encode())
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, claims, locked_by, locked_until) "
        "values ('t', 'default', 0, 'running', 1, 'gone', now() - interval '1 s')"
    )
    _, [reaped], _ = hand.run(ops.reap(BEGINNING, 10))
    assert reaped.status == "queued"
    assert list(second.notifies(timeout=60, stop_after=1)) != []


@rule("M81")
def test_who_wakes_the_others_is_not_woken_itself(
    connection: Connection, second: Connection, hand: Hand
) -> None:
    for name in ("w1", "w2"):
        hand.run(ops.request_notify(f"k {name}", ["default"], 60))
        second.execute(f'listen "{Statements("rota").worker_channel(name)}"'.encode())
    hand.run(ops.wake_others("k w1", ["default"]))
    [told] = second.notifies(timeout=60, stop_after=1)
    assert told.channel == Statements("rota").worker_channel("w2")
    assert list(second.notifies(timeout=0)) == []


@rule("M81")
def test_no_worker_waits_for_a_queue_that_is_locked(
    connection: Connection, second: Connection, hand: Hand
) -> None:
    connection.execute("set lock_timeout = '1s'")
    with second.transaction():
        second.execute("select from rota.queue where name = 'default' for update")
        assert not hand.run(ops.request_notify("k w2", ["default", "other"], 60))
        hand.run(ops.look_back("default", datetime.now(UTC)))
        hand.run(ops.stop("w1"))
    assert waiting(connection) == {"default": {"k w1", "k silent"}, "other": {"k w2"}}
    assert hand.run(ops.request_notify("k w2", ["default", "other"], 60))


@rule("M81")
def test_a_worker_counts_those_that_share_a_queue_with_it(connection: Connection) -> None:
    hand = Hand(connection)
    row = {"host": "h", "pid": 1, "version": "1", "release": "1", "job_types": [], "running": 0}
    beats = [("a", '{"x": 1}'), ("b", '{"x": 2, "y": 2}'), ("c", '{"y": 1}'), ("d", '{"z": 1}')]
    for _ in range(2):
        counted = [
            hand.run(ops.write_heartbeat({**row, "name": name, "queues": queues}))
            for name, queues in beats
        ]
    assert counted == [2, 3, 2, 1]
