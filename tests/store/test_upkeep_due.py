"""One question for all parts of upkeep."""

from __future__ import annotations

import json

import pytest

from rota.observe.events import Bus
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep.upkeep_set import UpkeepSet
from tests.store.work import Connection, Hand
from tests.support.rules import rule

BEGINNING = "1970-01-01T00:00:00Z"
JOB = "insert into rota.job (job_type, queue, priority, status, {}) values ('t', 'default', 0, {})"
LATER = "rota.clock() + interval '1 hour'"
EARLIER = "rota.clock() - interval '1 hour'"
SCHEDULE = (
    "insert into rota.schedule (name, job_type, cron, next_run_at) "
    "values ('s', 't', '0 * * * *', {})"
)

THINGS = {
    "reaper": JOB.format("locked_by, locked_until", f"'running', 'w', {EARLIER}"),
    "expirer": JOB.format("expires_at", f"'queued', {EARLIER}"),
    "group sweeper": JOB.format("group_key", "'waiting', 'g'"),
    "group sweeper of a queue": JOB.format("waits_for", "'waiting', 'queue default'"),
    "group sweeper of a type": JOB.format("waits_for", "'waiting', 'type t'"),
    "group sweeper of a cap": "insert into rota.queue (name, max_running) values ('default', 1)",
    "wait sweeper": JOB.format("waits_for", "'waiting', 'job 1'"),
    "limit planner": JOB.format("waits_for", "'queued', 'limit l'"),
    "batch folder": "insert into rota.batch_delta (batch) values (1)",
    "figures": "update rota.stat_rollup set complete_to = complete_to - interval '2 days'",
    "scheduler": SCHEDULE.format(EARLIER),
    "scheduler of an unplanned one": SCHEDULE.format("null"),
}
NOT_YET = [
    JOB.format("locked_by, locked_until", f"'running', 'w', {LATER}"),
    JOB.format("expires_at", f"'queued', {LATER}"),
    JOB.format("group_key", "'queued', 'g'"),
    JOB.format("waits_for", "'queued', 'person'"),
    SCHEDULE.format(LATER),
]


@pytest.fixture(scope="module")
def parts() -> list[str]:
    database = Database("")
    upkeep = UpkeepSet(Bus(), database, StoreLink(database, "test"), "w", None)
    return list(json.loads(upkeep.asker.make_question(1e12).text))


def ask(connection: Connection, parts: list[str]) -> ops.UpkeepDue | None:
    return Hand(connection).run(ops.find_upkeep_due(json.dumps(dict.fromkeys(parts, BEGINNING))))


@rule("M3")
@pytest.mark.parametrize("thing", THINGS)
def test_a_part_is_due_when_there_is_something_for_it_and_no_other_is(
    shared: Connection, parts: list[str], thing: str
) -> None:
    shared.execute("set session_replication_role = replica")  # rows are bare
    shared.execute("update rota.stat_rollup set complete_to = rota.clock()")
    for there in NOT_YET:
        shared.execute(there.encode())
    answer = ask(shared, parts)
    assert answer is not None and answer.due == []
    assert answer.tick_in_s is not None and 3_590 < answer.tick_in_s <= 3_600
    shared.execute("delete from rota.schedule")
    shared.execute(THINGS[thing].encode())
    answer = ask(shared, parts)
    part = thing.partition(" of ")[0]
    assert answer is not None and answer.due == [part]
    answer = ask(shared, [other for other in parts if other != part])
    assert answer is not None and answer.due == [], "only those that ask get an answer"


@rule("M22")
def test_while_all_is_paused_no_schedule_is_due(shared: Connection, parts: list[str]) -> None:
    shared.execute(SCHEDULE.format(EARLIER).encode())
    shared.execute("select rota.pause_all(null, 'why', 'who')")
    answer = ask(shared, parts)
    assert answer is not None and "scheduler" not in answer.due


@rule("M33")
@pytest.mark.parametrize(("ends_in_s", "told"), [(4, True), (6, False), (-1, False)])
def test_a_worker_is_told_when_a_lease_ends_that_ends_soon(
    shared: Connection, parts: list[str], ends_in_s: int, told: bool
) -> None:
    ends_at = f"rota.clock() + interval '{ends_in_s} seconds'"
    lease = f"'running', 'w', {ends_at}"
    shared.execute(JOB.format("locked_by, locked_until", lease).encode())
    answer = ask(shared, parts)
    assert answer is not None and (answer.reap_in_s is not None) is told
    late_s = (answer.reap_in_s or ends_in_s) - ends_in_s
    assert -1 < late_s <= 0.01, "it has just ended when the reaper wakes"


@rule("M3", "M31")
@pytest.mark.parametrize("table", ["schedule", "job"])
def test_a_question_does_not_wait_for_a_table_that_is_locked(
    connection: Connection, second: Connection, parts: list[str], table: str
) -> None:
    with second.transaction():
        second.execute(f"lock table rota.{table}".encode())
        assert ask(connection, parts) is None
    assert ask(connection, parts) is not None
