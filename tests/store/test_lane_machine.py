"""One lane against a model: whatever is done to its jobs, a claim gets the job that is next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from psycopg.rows import TupleRow

from rota.model.job import Action, Job, Status
from rota.model.settle import Transition
from rota.store import ops
from tests.store.work import (
    FAILURE,
    GIVE_UP,
    HAND_BACK,
    SUCCEED,
    Hand,
    expire,
    insert,
    make_branches,
)
from tests.support.rules import rule as keeps

Connection = psycopg.Connection[TupleRow]
RETRY = Transition("retry", Status.FAILED, delay_s=3600.0, failure=FAILURE)
SNOOZE = Transition("snooze", Status.QUEUED, charged=False, delay_s=3600.0)
ENDS = [SUCCEED, RETRY, SNOOZE, HAND_BACK, GIVE_UP]
PRIORITIES = (0, 50)


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


class Lane(RuleBasedStateMachine):
    """A lane with one place, or several."""

    jobs = Bundle("jobs")
    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        self.connection.execute("delete from rota.job")
        self.hand = Hand(self.connection, priorities=PRIORITIES)
        self.live: dict[int, Modelled] = {}
        self.dead: set[int] = set()
        self.places = 0
        self.capacity = 1

    @initialize(capacity=st.sampled_from([1, 1, 2]))
    def begin(self, capacity: int) -> None:
        """Choose how many may run at once."""
        self.capacity = capacity

    # What is done to the jobs

    @rule(target=jobs, priority=st.sampled_from(PRIORITIES))
    def enqueue(self, priority: int) -> int:
        """Another job comes due."""
        [id_] = insert(
            self.connection, group_key="g", group_capacity=self.capacity, priority=priority
        )
        self._put(id_, priority)
        return id_

    @rule()
    def claim(self) -> None:
        """A worker claims all that it gets: those that came back, and the next of the lane."""
        back = {one.id for one in self.live.values() if one.holds and not one.running}
        expected = {id_ for id_ in back if self.live[id_].is_due}
        expected |= {one.id for one in self._find_next()}
        claimed = self.hand.claim().jobs
        assert {job.id for job in claimed} == expected
        for job in claimed:
            one = self.live[job.id]
            one.running, one.holds, one.is_parked = job, True, False
        for one in self.live.values():
            one.is_parked = not one.holds

    @rule(id_=jobs, transition=st.sampled_from(ENDS))
    def end(self, id_: int, transition: Transition) -> None:
        """The attempt of a running job ends."""
        one = self.live.get(id_)
        if one is None or one.running is None:
            return
        ending = ops.Ending(one.running, transition, 0.1, frees_place=True)
        write: Callable[..., Any] = ops.finish if transition.status.is_over else ops.leave
        assert len(self.hand.run(write([ending], "1"))) == 1
        one.running = None
        one.is_due = transition.delay_s is None
        if transition.status in (Status.SUCCEEDED, Status.DEAD):
            del self.live[id_]
        if transition.status is Status.DEAD:
            self.dead.add(id_)
        self._promote()

    @rule(id_=jobs)
    def end_and_pass(self, id_: int) -> None:
        """A job succeeds, and the next ones go to its worker: the parked ones before which no other
        is ready."""
        one = self.live.get(id_)
        if one is None or one.running is None:
            return
        del self.live[id_]
        nexts = [next_ for next_ in self._find_next() if next_.is_parked]
        ready = [
            other.priority
            for other in self.live.values()
            if other.is_due and not other.running and not other.is_parked
        ]
        expected = {next_.id for next_ in nexts if next_.priority > max(ready, default=-1)}
        where = make_branches("default", priorities=PRIORITIES)
        claims = [(one.running.id, one.running.claims, 0.1)]
        done = self.hand.run(ops.finish_and_pass(claims, self.hand.who, where))
        assert done is not None
        assert (done[0], {job.id for job in done[1].jobs}) == ({id_}, expected)
        self._promote()
        for job in done[1].jobs:
            self.live[job.id].running = job

    @rule()
    def lose(self) -> None:
        """All workers die. The jobs come back at once: they may not have begun."""
        expire(self.connection)
        self.connection.execute("update rota.job set losses = null where status = 'running'")
        self.hand.reap()
        for one in self.live.values():
            one.running = None

    @rule(id_=jobs)
    def cancel(self, id_: int) -> None:
        """A person cancels a job that does not run."""
        one = self.live.get(id_)
        if one is not None and one.running is None:
            self._act(Action.CANCEL, id_)
            del self.live[id_]
            self.hand.run(ops.sweep_lanes("", 10))
            self._promote()

    @rule(id_=jobs)
    def retry(self, id_: int) -> None:
        """A person lets a job that backs off run now."""
        one = self.live.get(id_)
        if one is not None and one.running is None and not one.is_due:
            self._act(Action.RETRY, id_)
            one.is_due = True

    @rule(id_=jobs)
    def postpone(self, id_: int) -> None:
        """A person moves a job that has not begun to the end of the lane: it is due from now."""
        one = self.live.get(id_)
        if one is not None and one.running is None and not one.holds:
            moved = ops.Moved(priority=one.priority)
            request = ops.ActionRequest(Action.RESCHEDULE, "ann", moved=moved)
            [answer] = self.hand.run(ops.act(request, [id_]))
            assert answer.answer == "done"
            self.places += 1
            one.place = self.places
            one.is_parked = False
            self.hand.run(ops.sweep_lanes("", 10))
            self._promote()

    @rule()
    def requeue(self) -> None:
        """A person requeues the dead jobs. They stand at the end of the lane."""
        for id_ in sorted(self.dead):
            [answer] = self._act(Action.REQUEUE, id_)
            assert answer.new_id is not None
            [(priority,)] = self.connection.execute(
                "select priority from rota.job where id = %s", [answer.new_id]
            ).fetchall()
            self._put(answer.new_id, priority)
        self.dead.clear()

    # What must hold

    @invariant()
    def as_many_hold_a_place_as_the_model_says(self) -> None:
        """The rows say what the model says."""
        rows = self.connection.execute("select id from rota.job where in_lane").fetchall()
        assert {one.id for one in self.live.values() if one.holds} == {row[0] for row in rows}
        assert len(rows) <= self.capacity

    # The model

    def _put(self, id_: int, priority: int) -> None:
        self.places += 1
        self.live[id_] = Modelled(id_, priority, self.places)

    def _find_next(self) -> list[Modelled]:
        """The jobs that may take a place now, in their order."""
        free = self.capacity - sum(one.holds for one in self.live.values())
        waiting = [one for one in self.live.values() if not one.holds]
        return sorted(waiting, key=lambda one: (-one.priority, one.place))[: max(0, free)]

    def _act(self, action: Action, id_: int) -> list[ops.Answer]:
        [answer] = self.hand.run(ops.act(ops.ActionRequest(action, "ann"), [id_]))
        assert answer.answer in ("done", "cancelled"), answer
        return [answer]

    def _promote(self) -> None:
        for one in self._find_next():
            one.holds, one.is_parked = one.is_parked, False


@pytest.mark.slow
@keeps("M60")
def test_a_lane_does_what_its_model_does(connection: Connection) -> None:
    machine = type("OfThisDatabase", (Lane,), {"connection": connection})
    run_state_machine_as_test(
        machine, settings=hypothesis.settings(max_examples=100, stateful_step_count=30)
    )
