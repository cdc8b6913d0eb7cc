"""Lanes under everything at once: eight workers of which some die, cancels, snoozes, retries, lost
leases and requeues. What happened is read from a log that the server itself writes.

`LANES=200 LANE_JOBS=500` runs it in full size.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.model.job import Action, Job, Status
from rota.model.outcome import Failure
from rota.model.settle import Transition
from rota.store import ops
from tests.store.work import SUCCEED, Hand, make_branches
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
LANES = int(os.environ.get("LANES", "24"))
JOBS = int(os.environ.get("LANE_JOBS", "25"))
WORKERS = 8
TRIES = 2
SOON_S = 0.02
END_S = 60 + LANES * JOBS / 100
FAILURE = Failure("OSError", "no", "transient", "default")
RETRY = Transition("retry", Status.FAILED, delay_s=SOON_S, failure=FAILURE)
DIE = Transition("give_up", Status.DEAD, failure=FAILURE)
SNOOZE = Transition("snooze", Status.QUEUED, charged=False, delay_s=SOON_S)
BACK = Transition("hand_back", Status.QUEUED, charged=False)

LOG = """
create table public.log (id bigserial, lane text, job bigint, what text);
create function public.note() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    insert into public.log (lane, job, what) values (old.group_key, old.id, 'end');
  elsif new.status = 'running' and old.status <> 'running' then
    insert into public.log (lane, job, what) values (new.group_key, new.id, 'start');
  elsif new.in_lane is not true and old.in_lane then
    insert into public.log (lane, job, what) values (new.group_key, new.id, 'end');
  end if;
  return null;
end $$;
create trigger note after update or delete on rota.job for each row execute function public.note()
"""
"""In the transaction of each change. A lane's changes wait for each other, so their ids ascend."""


class Fleet:
    """The workers, and the people who disturb them."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self._seeds = random.Random(seed)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(
        self, do: Callable[[Hand, random.Random], None], name: str, types: Sequence[str] = ("t",)
    ) -> None:
        """Repeat this on a connection of its own, until all are stopped."""
        chance = random.Random(self._seeds.random())

        def run() -> None:
            try:
                with psycopg.connect(self.url, autocommit=True) as own:
                    hand = Hand(own, name, types=types, lease=timedelta(seconds=0.3))
                    while not self.stop.is_set():
                        do(hand, chance)
            except BaseException as error:  # noqa: BLE001 - raised by the test
                self.errors.append(error)
                self.stop.set()

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Stop all; raises what one of them raised."""
        self.stop.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    # What they do

    def work(self, hand: Hand, chance: random.Random) -> None:
        """Claim, and end each job in one way or another."""
        with hand.connection.transaction(force_rollback=chance.random() < 0.02) as transaction:
            jobs: Sequence[Job] = hand.claim(chance.choice([1, 3, 20])).jobs
        if transaction.force_rollback:
            return self._count("claims undone")
        if not jobs:
            self.stop.wait(0.005)
        while jobs:
            time.sleep(chance.random() * 0.004)
            if chance.random() < 0.03:
                return self._count("workers that died")  # their leases expire
            jobs = self._end(hand, jobs, chance)
        return None

    def _end(self, hand: Hand, jobs: Sequence[Job], chance: random.Random) -> Sequence[Job]:
        """End each job in one way or another; return the next ones of their lanes, if this worker
        got them with that."""
        endings = [
            ops.Ending(job, self._choose(job, chance), 0.001, frees_place=True) for job in jobs
        ]
        over = [ending for ending in endings if ending.transition.status.is_over]
        others = [ending for ending in endings if not ending.transition.status.is_over]
        if others:
            hand.run(ops.leave(others, "1"))
        plain = [(one.job.id, one.job.claims, 0.001) for one in over if one.transition is SUCCEED]
        if len(plain) == len(over) > 0:
            where = make_branches("default")
            done = hand.run(ops.finish_and_pass(plain, hand.who, where))
            assert done is not None
            self._count("ended", len(done[0]))
            self._count("passed", len(done[1].jobs))
            return done[1].jobs
        if over:
            self._count("ended", len(hand.run(ops.finish(over, "1"))))
        return []

    def _choose(self, job: Job, chance: random.Random) -> Transition:
        drawn = chance.random()
        if drawn < 0.15:
            return DIE if job.attempts >= TRIES else RETRY
        if drawn < 0.20:
            return SNOOZE
        if drawn < 0.25:
            return BACK
        return SUCCEED

    def _count(self, what: str, jobs: int = 1) -> None:
        with self._lock:
            self.counts[what] += jobs

    def upkeep(self, hand: Hand, chance: random.Random) -> None:
        """Reap, sweep and requeue."""
        self._count("reaped", len(hand.reap()))
        after: str | None = ""
        while after is not None:
            swept = hand.run(ops.sweep_lanes(after, 50))
            after = swept.last_lane
            self._count("swept", swept.promoted)
        dead = hand.connection.execute("select id from rota.job where status = 'dead'").fetchall()
        if dead:
            self._count("requeued", len(dead))
            request = ops.ActionRequest(Action.REQUEUE, "ann")
            hand.run(ops.act(request, [row[0] for row in dead]))
        self.stop.wait(0.05)

    def cancel(self, hand: Hand, chance: random.Random) -> None:
        """Cancel jobs, in transactions that end some time later, or not at all."""
        rows = hand.connection.execute(
            "select id from rota.job where status <> 'dead' order by random() limit 2"
        ).fetchall()
        with hand.connection.transaction(force_rollback=chance.random() < 0.3):
            request = ops.ActionRequest(Action.CANCEL, "ann")
            answers = hand.run(ops.act(request, [row[0] for row in rows]))
            self._count("cancelled", sum(one.answer == "cancelled" for one in answers))
            self.stop.wait(0.03)
        self.stop.wait(0.05)


@rule("M60")
@pytest.mark.slow
@pytest.mark.parametrize("capacity", [1, 3])
def test_eight_workers_keep_the_order_and_the_capacity_of_each_lane(
    database: str, connection: Connection, capacity: int
) -> None:
    connection.execute(LOG)
    connection.execute(
        "insert into rota.job_type (name, max_attempts, retry_after) values ('t', %s, %s)",
        [TRIES, [timedelta(seconds=SOON_S)]],
    )
    for _ in range(JOBS):  # round by round, so that each lane's jobs come due in the order of ids
        connection.execute(
            "insert into rota.job (job_type, queue, priority, group_key, group_capacity) "
            "select 't', 'default', 0, 'lane ' || n, %s from generate_series(1, %s) n",
            [capacity, LANES],
        )
    fleet = Fleet(database, seed=capacity)
    for number in range(WORKERS):
        fleet.start(fleet.work, f"w{number}")
    fleet.start(fleet.upkeep, "upkeep")
    fleet.start(fleet.cancel, "ann")
    until = time.monotonic() + END_S
    while not fleet.stop.wait(0.2) and time.monotonic() < until:
        if connection.execute("select not exists (select from rota.job)").fetchone() == (True,):
            break
    fleet.join()
    rows = connection.execute("select status, in_lane, count(*) from rota.job group by 1, 2")
    assert rows.fetchall() == [], fleet.counts
    assert fleet.counts["passed"]
    check(connection, capacity)


def check(connection: Connection, capacity: int) -> None:
    """Hold the log against the model: at most so many at once, and each job in its turn."""
    holders: dict[str, set[int]] = defaultdict(set)
    begun: dict[str, list[int]] = defaultdict(list)
    for lane, job, what in connection.execute("select lane, job, what from public.log order by id"):
        if what == "end":
            holders[lane].discard(job)
            continue
        if job not in holders[lane]:
            begun[lane].append(job)
        holders[lane].add(job)
        assert len(holders[lane]) <= capacity, (lane, holders[lane])
    assert len(begun) == LANES
    for lane, order in begun.items():
        passed = [
            (one, later)
            for place, one in enumerate(order)
            for later in order[place + 1 :]
            if later < one
        ]
        # Of several that hold places at once, the later one may begin first.
        assert len(passed) <= (capacity - 1) * len(order), (lane, passed)
        if capacity == 1:
            assert passed == [], lane
