"""Breakers against a small model of them: whatever is recorded and tried in whatever order, the
answers are what the model says."""

from __future__ import annotations

from dataclasses import dataclass, field

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    run_state_machine_as_test,
)
from hypothesis.stateful import rule as step
from psycopg.rows import TupleRow

from rota.model.breaker import BreakerRules, EndpointHealth
from rota.store import ops
from tests.store.test_machine import CLOCK
from tests.store.work import Hand, insert
from tests.support.rules import rule

RULES = BreakerRules("mail", failures=3, within_s=60, open_for_s=30, max_open_s=100)
DEADLINE_S = 50
JOBS = 4


@dataclass
class Model:
    """One breaker. Times are seconds of the moved clock."""

    state: str = "closed"
    failed_at: list[float] = field(default_factory=list)
    openings: int = 0
    until: float = 0.0
    trial: int | None = None
    closed_at: float = float("-inf")

    def count(self, now: float, began_at: float, count: int) -> str | None:
        """Take in failures of attempts that began at one time."""
        if self.state != "closed":
            return None
        fresh = [now] * count if began_at >= self.closed_at else []
        failed_at = [at for at in self.failed_at + fresh if at > now - RULES.within_s]
        self.failed_at = failed_at[-RULES.failures :]
        if len(failed_at) < RULES.failures:
            return None
        self.state, self.failed_at, self.openings = "open", [], 1
        self.until = now + RULES.open_for_s
        return "opened"

    def look(self, now: float, live: set[int]) -> str:
        """What a job meets."""
        if self.state == "closed":
            return "closed"
        over = now >= self.until or (self.state == "trial" and self.trial not in live)
        return "due" if over else self.state

    def end_trial(self, now: float, job: int, health: EndpointHealth) -> str | None:
        """Take in the end of a trial."""
        if self.state != "trial" or self.trial != job:
            return None
        self.trial = None
        if health is EndpointHealth.SERVES:
            self.state, self.failed_at, self.openings, self.closed_at = "closed", [], 0, now
            return "closed"
        self.state = "open"
        if health is EndpointHealth.UNKNOWN:
            self.until = now
            return "untried"
        self.until = now + min(RULES.max_open_s, RULES.open_for_s * 2**self.openings)
        self.openings += 1
        return "reopened"


class Breakers(RuleBasedStateMachine):
    """What workers of one breaker do."""

    connection: psycopg.Connection[TupleRow]

    @initialize()
    def begin(self) -> None:
        self.connection.execute("truncate rota.job, rota.breaker")
        self.connection.execute("set test.ahead_s = 0")
        self.now = 0.0
        self.model = Model()
        self.hand = Hand(self.connection)
        insert(self.connection, JOBS)
        self.jobs = self.hand.claim(JOBS).jobs
        self.live = {job.id for job in self.jobs}

    @step(count=st.integers(1, 4), ago_s=st.sampled_from([0, 5, 40]))
    def fail(self, count: int, ago_s: int) -> None:
        result = ops.EndpointResult(RULES, "", [float(ago_s)] * count, "no answer")
        [recorded] = self.hand.run(ops.record_at_breakers([result]))
        assert recorded.change == self.model.count(self.now, self.now - ago_s, count)

    @step(place=st.integers(0, JOBS - 1))
    def attempt(self, place: int) -> None:
        job = self.jobs[place]
        if job.id not in self.live:
            return  # its worker is lost
        asked = ops.Try("mail", "", job.id, job.claims, DEADLINE_S)
        answer = self.hand.run(ops.try_breakers([asked]))[job.id]
        expected = self.model.look(self.now, self.live)
        if expected == "due":
            assert answer is True
            self.model.state, self.model.trial = "trial", job.id
            self.model.until = self.now + DEADLINE_S
        elif expected == "closed":
            assert answer is False
        else:
            assert isinstance(answer, ops.Blocked)
            assert (answer.state, answer.wait_s) == (expected, self.model.until - self.now)

    @step(place=st.integers(0, JOBS - 1), health=st.sampled_from(EndpointHealth))
    def end(self, place: int, health: EndpointHealth) -> None:
        job = self.jobs[place]
        result = ops.EndpointResult(RULES, "", [], "no answer", health, job.id, job.claims)
        [recorded] = self.hand.run(ops.record_at_breakers([result]))
        assert recorded.change == self.model.end_trial(self.now, job.id, health)

    @precondition(lambda self: self.live)
    @step(place=st.integers(0, JOBS - 1))
    def lose(self, place: int) -> None:
        job = self.jobs[place]
        self.connection.execute(
            "update rota.job set claims = claims + 1, status = 'queued'"
            " where id = %s and claims = %s",
            [job.id, job.claims],
        )
        self.live.discard(job.id)

    @step(seconds=st.sampled_from([1, 10, 30, 61]))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.connection.execute("select set_config('test.ahead_s', %s, false)", [str(self.now)])

    @invariant()
    def a_look_says_what_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        blocked = self.hand.run(ops.look_at_breakers([("mail", "")])).get(("mail", ""))
        found = "closed" if blocked is None else blocked.state
        assert found == self.model.look(self.now, self.live)


@rule("M63")
@pytest.mark.slow
def test_a_breaker_does_what_its_model_says(connection: psycopg.Connection[TupleRow]) -> None:
    connection.execute(CLOCK)

    class Here(Breakers):
        pass

    Here.connection = connection
    run_state_machine_as_test(
        Here, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
