"""What is counted in several places is the same number everywhere: jobs at once, and what ended
within a minute."""

from __future__ import annotations

import re
from datetime import datetime

import psycopg
from psycopg.rows import TupleRow

from rota import App
from rota.observe.doctor.checks import examine
from rota.store import ops
from rota.store.db import Database
from tests.cli.here import Here
from tests.store.planned import move_clock
from tests.store.work import FAIL, GIVE_UP, SUCCEED, Hand, insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@rule("M85")
def test_after_sixty_jobs_every_count_has_them_and_a_minute_later_every_figure(
    rota: Here, database: str, connection: Connection
) -> None:
    hand = Hand(connection)
    move_clock(connection, "-61 s")
    insert(connection, 70)
    hand.send_heartbeat(slots=20, running=17)  # from before: the rows say what runs
    jobs = hand.claim(67).jobs
    outcomes = [SUCCEED] * 50 + [FAIL] * 6 + [GIVE_UP] * 4
    hand.settle(*zip(jobs[:60], outcomes, strict=True))
    app = App(url=database)
    assert app.queues.stats().jobs["failed"] == 6
    move_clock(connection, "0 s")
    connection.execute("update rota.stat_rollup set complete_to = complete_to - interval '1 hour'")
    while hand.run(ops.roll_up_stats()):
        pass
    hand.send_heartbeat(slots=20, running=17)

    ours = app.queues.stats()
    app.close()
    theirs = rota.ok("stats", "--json").json
    assert ours.jobs == theirs["jobs"]
    assert ours.complete_to == datetime.fromisoformat(theirs["complete_to"])
    assert ours.jobs == {"queued": 3, "waiting": 0, "running": 7, "failed": 6, "dead": 4}
    [of_type] = ours.types
    assert (of_type.succeeded, of_type.retried, of_type.dead) == (50, 6, 4)
    assert [(row["succeeded"], row["retried"], row["dead"]) for row in theirs["types"]] == [
        (50, 6, 4)
    ]
    assert ours.failed_by_release == theirs["failed_by_release"]
    shown = rota.ok("stats").out
    assert re.search(r"^Ended in the last 24 h, until 3\d s ago;", shown, re.MULTILINE)
    assert ["t", "50", "6", "4"] in [line.split()[:4] for line in shown.splitlines()]

    top = rota.ok("top", "--json").json
    assert (top["running_count"], top["dead"]) == (7, 4)
    assert [worker["running"] for worker in top["workers"]] == [7]
    assert sum(queue["due"] for queue in top["queues"]) == 9, "the retries too"
    assert " running 7 · workers 1 ·" in rota.ok("top", "--once").out
    assert [worker["running"] for worker in rota.ok("workers", "--json").json["workers"]] == [7]
    found = examine(Database(database), only=["running", "dead"])
    assert found["running"].what == "7 jobs are running, none beyond its timeout"
    assert found["dead"].what.startswith("4 dead jobs, ")
