"""Lanes and caps under everything at once: workers of which some die, cancels, snoozes, retries,
lost leases and requeues. What happened is read from a log that the server itself writes.

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
LANES = int(os.environ.get("LANES", "16"))
"""Every second one has a capacity of 3."""
JOBS = int(os.environ.get("LANE_JOBS", "20"))
WORKERS = 6
CAPS: dict[str, int | None] = {"free": None, "capped": 4, "plain": 2}
"""Of the types: of half the lanes, of the other half, and of jobs without a lane."""
TRIES = 2
SOON_S = 0.02
END_S = 60 + LANES * JOBS / 100
FAILURE = Failure("OSError", "no", "transient", "default")
RETRY = Transition("retry", Status.FAILED, delay_s=SOON_S, failure=FAILURE)
DIE = Transition("give_up", Status.DEAD, failure=FAILURE)
SNOOZE = Transition("snooze", Status.QUEUED, charged=False, delay_s=SOON_S)
BACK = Transition("hand_back", Status.QUEUED, charged=False)

LOG = """
create table public.log (id bigserial, type text, lane text, job bigint, what text);
create function public.note() returns trigger language plpgsql as $$
begin
  if old.status = 'running' and (tg_op = 'DELETE' or new.status <> 'running') then
    insert into public.log (type, lane, job, what)
      values (old.job_type, old.group_key, old.id, 'stops');
  end if;
  if tg_op = 'DELETE' or new.in_lane is not true and old.in_lane then
    insert into public.log (type, lane, job, what)
      values (old.job_type, old.group_key, old.id, 'leaves');
  elsif new.status = 'running' and old.status <> 'running' then
    insert into public.log (type, lane, job, what)
      values (new.job_type, new.group_key, new.id, 'starts');
  end if;
  return null;
end $$;
create trigger note after update or delete on rota.job for each row execute function public.note()
"""
"""In the transaction of each change. The changes of a lane and those of a cap wait for each other,
so their ids ascend."""


class Fleet:
    """The workers, and the people who disturb them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self._seeds = random.Random(1)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self, do: Callable[[Hand, random.Random], None], name: str) -> None:
        """Repeat this on a connection of its own, until all are stopped."""
        chance = random.Random(self._seeds.random())

        def run() -> None:
            try:
                with psycopg.connect(self.url, autocommit=True) as own:
                    hand = Hand(own, name, types=list(CAPS), lease=timedelta(seconds=0.3))
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
            return
        if not jobs:
            self.stop.wait(0.01)
        while jobs:
            self.stop.wait(chance.random() * 0.004)
            if chance.random() < 0.03:
                return  # it dies, and their leases expire
            jobs = self._end(hand, jobs, chance)

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
            self._count("passed", len(done[1].jobs))
            return done[1].jobs
        if over:
            hand.run(ops.finish(over, "1"))
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

    def _count(self, what: str, jobs: int) -> None:
        with self._lock:
            self.counts[what] += jobs

    def keep_up(self, hand: Hand, chance: random.Random) -> None:
        """Reap, sweep and requeue."""
        self._count("reaped", len(hand.reap()))
        after: str | None = ""
        while after is not None:
            after = hand.run(ops.sweep_lanes(after, 50)).last_lane
        hand.run(ops.sweep_caps())
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


@pytest.mark.nightly
@rule("M60", "M61")
def test_workers_keep_the_order_and_the_capacity_of_each_lane_and_the_caps_of_their_types(
    database: str, connection: Connection
) -> None:
    connection.execute(LOG)
    for name, most in CAPS.items():
        connection.execute(
            "insert into rota.job_type (name, max_attempts, retry_after, max_running) "
            "values (%s, %s, %s, %s)",
            [name, TRIES, [timedelta(seconds=SOON_S)], most],
        )
    for _ in range(JOBS):  # round by round, so that each lane's jobs come due in the order of ids
        connection.execute(
            "insert into rota.job (job_type, queue, priority, group_key, group_capacity) "
            "select case when n %% 4 < 2 then 'free' else 'capped' end, 'default', 0, "
            "'lane ' || n, 1 + n %% 2 * 2 from generate_series(1, %s) n",
            [LANES],
        )
    connection.execute(
        "insert into rota.job (job_type, queue, priority) "
        "select 'plain', 'default', 0 from generate_series(1, 80)"
    )
    fleet = Fleet(database)
    for number in range(WORKERS):
        fleet.start(fleet.work, f"w{number}")
    fleet.start(fleet.keep_up, "upkeep")
    fleet.start(fleet.cancel, "ann")
    until = time.monotonic() + END_S
    while not fleet.stop.wait(0.2) and time.monotonic() < until:
        if connection.execute("select not exists (select from rota.job)").fetchone() == (True,):
            break
    fleet.join()
    left = connection.execute("select status, in_lane, count(*) from rota.job group by 1, 2")
    assert left.fetchall() == [], fleet.counts
    assert all(fleet.counts[what] for what in ("passed", "reaped", "requeued", "cancelled"))
    check(connection)


def check(connection: Connection) -> None:
    """Hold the log against the model: at most so many at once, and each job in its turn."""
    running: dict[str, set[int]] = defaultdict(set)
    holders: dict[str, set[int]] = defaultdict(set)
    begun: dict[str, list[int]] = defaultdict(list)
    for type_, lane, job, what in connection.execute(
        "select type, lane, job, what from public.log order by id"
    ):
        if what == "starts":
            running[type_].add(job)
            assert len(running[type_]) <= (CAPS[type_] or JOBS * LANES), (type_, running[type_])
        elif what == "stops":
            running[type_].discard(job)
        if lane is None:
            continue
        if what == "leaves":
            holders[lane].discard(job)
        elif what == "starts":
            if job not in holders[lane]:
                begun[lane].append(job)
            holders[lane].add(job)
            assert len(holders[lane]) <= _capacity(lane), (lane, holders[lane])
    assert len(begun) == LANES
    for lane, order in begun.items():
        if _capacity(lane) == 1:
            assert order == sorted(order), lane


def _capacity(lane: str) -> int:
    return 1 + int(lane.split()[1]) % 2 * 2
