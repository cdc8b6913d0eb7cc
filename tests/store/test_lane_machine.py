"""One lane against a model: whatever is done to its jobs, a claim gets the job that is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from rota.model.job import Action, Job, Status
from rota.model.settle import Transition
from rota.store import ops
from tests.store.work import (
    FAILURE,
    GIVE_UP,
    HAND_BACK,
    SUCCEED,
    Connection,
    Hand,
    expire,
    insert,
    make_branches,
)
from tests.support.rules import rule

RETRY = Transition("retry", Status.FAILED, delay_s=3600.0, failure=FAILURE)
SNOOZE = Transition("snooze", Status.QUEUED, charged=False, delay_s=3600.0)
ENDS = [SUCCEED, RETRY, SNOOZE, HAND_BACK, GIVE_UP]
PRIORITIES = (0, 50)
WALKS, STEPS = 8, 45
JOBS = 6
"""As many live at once."""


@dataclass
class Modelled:
    """A job of the lane that is neither over nor dead."""

    id: int
    priority: int
    place: int
    """Its place in the order of becoming due, among those of its priority."""
    is_due: bool = True
    holds: bool = False
    is_parked: bool = False
    """Whether a claim has seen it: then it gets its place as soon as one is free."""
    running: Job | None = None


class Walk:
    """A lane with one place, or two, to which one thing after another is done by chance."""

    def __init__(self, connection: Connection, seed: int) -> None:
        connection.execute("delete from rota.job")
        self.connection, self.chance = connection, Random(seed)
        self.hand = Hand(connection, priorities=PRIORITIES)
        self.live: dict[int, Modelled] = {}
        self.dead: set[int] = set()
        self.places = 0
        self.capacity = 1 + seed % 2

    def turn(self) -> str:
        """Do one of the things that can be done now; return which."""
        jobs = list(self.live.values())
        can: dict[Callable[[Any], None], list[Any]] = {
            self.enqueue: [None] * (len(jobs) < JOBS),
            self.claim: [None],
            self.end: [job for job in jobs if job.running],
            self.end_and_pass: [job for job in jobs if job.running],
            self.lose: [None] * any(job.running for job in jobs),
            self.cancel: [job for job in jobs if not job.running],
            self.retry: [job for job in jobs if not job.running and not job.is_due],
            self.postpone: [job for job in jobs if not job.running and not job.holds],
            self.requeue: [None] * bool(self.dead),
        }
        weights = {self.enqueue: 3, self.claim: 2, self.end: 4, self.end_and_pass: 3}
        able = [do for do, on in can.items() if on]
        [do] = self.chance.choices(able, [weights.get(doing, 1) for doing in able])
        do(self.chance.choice(can[do]))
        return do.__name__

    # What is done to the jobs

    def enqueue(self, _: None) -> None:
        """Another job comes due."""
        priority = self.chance.choice(PRIORITIES)
        [id_] = insert(
            self.connection, group_key="g", group_capacity=self.capacity, priority=priority
        )
        self._put(id_, priority)

    def claim(self, _: None) -> None:
        """A worker claims all that it gets: those that came back, and the next of the lane."""
        back = {model.id for model in self.live.values() if model.holds and not model.running}
        expected = {id_ for id_ in back if self.live[id_].is_due}
        expected |= {model.id for model in self._find_next()}
        claimed = self.hand.claim().jobs
        assert {job.id for job in claimed} == expected
        for job in claimed:
            model = self.live[job.id]
            model.running, model.holds, model.is_parked = job, True, False
        for model in self.live.values():
            model.is_parked = not model.holds

    def end(self, job: Modelled) -> None:
        assert job.running is not None
        transition = self.chance.choice(ENDS)
        ending = ops.Ending(job.running, transition, 0.1, frees_place=True)
        write: Callable[..., Any] = ops.finish if transition.status.is_over else ops.leave
        assert len(self.hand.run(write([ending], "1"))) == 1
        job.running = None
        job.is_due = transition.delay_s is None
        if transition.status in (Status.SUCCEEDED, Status.DEAD):
            del self.live[job.id]
        if transition.status is Status.DEAD:
            self.dead.add(job.id)
        self._promote()

    def end_and_pass(self, ended: Modelled) -> None:
        """A job succeeds, and the next ones go to its worker: the parked ones before which no other
        is ready."""
        assert ended.running is not None
        del self.live[ended.id]
        nexts = [next_ for next_ in self._find_next() if next_.is_parked]
        ready = [
            other.priority
            for other in self.live.values()
            if other.is_due and not other.running and not other.is_parked
        ]
        expected = {next_.id for next_ in nexts if next_.priority > max(ready, default=-1)}
        where = make_branches("default", priorities=PRIORITIES)
        claims = [(ended.running.id, ended.running.claims, 0.1)]
        done = self.hand.run(ops.finish_and_pass(claims, self.hand.who, where))
        assert done is not None
        assert (done[0], {job.id for job in done[1].jobs}) == ({ended.id}, expected)
        self._promote()
        for job in done[1].jobs:
            self.live[job.id].running = job

    def lose(self, _: None) -> None:
        """All workers die. The jobs come back at once: they may not have begun."""
        expire(self.connection)
        self.connection.execute("update rota.job set losses = null where status = 'running'")
        self.hand.reap()
        for job in self.live.values():
            job.running = None

    def cancel(self, job: Modelled) -> None:
        self._act(ops.ActionRequest(Action.CANCEL, "ann"), job.id)
        del self.live[job.id]
        self.hand.run(ops.sweep_rooms("", 10))
        self._promote()

    def retry(self, job: Modelled) -> None:
        """A person lets a job that backs off run now."""
        self._act(ops.ActionRequest(Action.RETRY, "ann"), job.id)
        job.is_due = True

    def postpone(self, job: Modelled) -> None:
        """A person moves a job that has not begun to the end of the lane: it is due from now."""
        moved = ops.Moved(priority=job.priority)
        self._act(ops.ActionRequest(Action.RESCHEDULE, "ann", moved=moved), job.id)
        self.places += 1
        job.place = self.places
        job.is_parked = False
        self.hand.run(ops.sweep_rooms("", 10))
        self._promote()

    def requeue(self, _: None) -> None:
        for id_ in sorted(self.dead):
            answer = self._act(ops.ActionRequest(Action.REQUEUE, "ann"), id_)
            assert answer.new_id is not None
            [(priority,)] = self.connection.execute(
                "select priority from rota.job where id = %s", [answer.new_id]
            ).fetchall()
            self._put(answer.new_id, priority)
        self.dead.clear()

    # What must hold

    def look(self) -> None:
        rows = self.connection.execute("select id from rota.job where in_lane").fetchall()
        assert {job.id for job in self.live.values() if job.holds} == {row[0] for row in rows}
        assert len(rows) <= self.capacity

    # The model

    def _put(self, id_: int, priority: int) -> None:
        self.places += 1
        self.live[id_] = Modelled(id_, priority, self.places)

    def _find_next(self) -> list[Modelled]:
        """The jobs that may take a place now, in their order."""
        free = self.capacity - sum(job.holds for job in self.live.values())
        waiting = [job for job in self.live.values() if not job.holds]
        return sorted(waiting, key=lambda job: (-job.priority, job.place))[: max(0, free)]

    def _act(self, request: ops.ActionRequest, id_: int) -> ops.Answer:
        [answer] = self.hand.run(ops.act(request, [id_]))
        assert answer.answer in ("done", "cancelled"), answer
        return answer

    def _promote(self) -> None:
        for job in self._find_next():
            job.holds, job.is_parked = job.is_parked, False


@rule("M60")
def test_a_lane_does_what_its_model_does(connection: Connection) -> None:
    done: Counter[str] = Counter()
    for seed in range(WALKS):
        walk = Walk(connection, seed)
        for step in range(STEPS):
            try:
                done[walk.turn()] += 1
                walk.look()
            except AssertionError as error:
                error.add_note(f"walk {seed}, step {step}: {walk.live}")
                raise
    assert len(done) == 9, f"not all was done: {done}"
