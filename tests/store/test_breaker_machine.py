"""Breakers against a small model of them: whatever is recorded and tried in whatever order, the
answers are what the model says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import psycopg
from psycopg.rows import TupleRow

from rota.model.breaker import BreakerRules, EndpointHealth
from rota.store import ops
from tests.store.work import Hand, insert
from tests.support.rules import rule

RULES = BreakerRules("mail", failures=3, within_s=60, open_for_s=30, max_open_s=100)
JOBS = 6
WALKS, STEPS = 16, 40
START = datetime(2026, 1, 14, 9, tzinfo=UTC)

# Only the steps move it, so that a slow machine changes no answer.
CLOCK = """create
  or replace function rota.clock() returns timestamptz language sql stable parallel safe as $$
  select '2026-01-14 09:00+00'::timestamptz
    + pg_catalog.make_interval(secs => coalesce(pg_catalog.current_setting('test.ahead_s', true),
      '0')::float8) $$"""


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
        over = self.trial not in live if self.state == "trial" else now >= self.until
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


class Walk:
    """Workers of one breaker, who do one thing after another by chance.

    Not by hypothesis, whose walks hardly ever come as far as to a trial that ends.
    """

    def __init__(self, connection: psycopg.Connection[TupleRow], seed: int) -> None:
        connection.execute("truncate rota.job, rota.breaker, rota.job_type")
        connection.execute("insert into rota.job_type (name, breaker) values ('t', 'mail')")
        self.connection, self.chance = connection, Random(seed)
        self.now, self.model, self.hand = 0.0, Model(), Hand(connection)
        insert(connection, JOBS)
        self.jobs = {job.id: job for job in self.hand.claim(JOBS).jobs}
        self.live = set(self.jobs)
        self.wait(0)

    def turn(self) -> str | None:
        """Do one of the things that can be done now; return what changed by it."""
        can = [
            *(self.fail, self.fail, self.end_another),
            *(self.attempt, self.pass_time, self.pass_time),
        ]
        if self.model.trial is not None:
            can += [self.end_trial] * 3
        if self.model.trial in self.live:
            can += [self.lose_trial]
        return self.chance.choice(can)()

    def pass_time(self) -> None:
        self.wait(self.chance.choice([1, 10, 30, 61]))

    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.connection.execute("select set_config('test.ahead_s', %s, false)", [str(self.now)])

    def fail(self) -> str | None:
        count, ago_s = self.chance.randint(1, 4), self.chance.choice([0, 5, 40])
        result = ops.EndpointResult(RULES, "", [float(ago_s)] * count, "no answer")
        recorded = self.hand.record(result)
        assert recorded.change == self.model.count(self.now, self.now - ago_s, count)
        return recorded.change

    def attempt(self) -> str:
        [new] = insert(self.connection, run_at=START + timedelta(seconds=self.now))
        expected = self.model.look(self.now, self.live)
        claimed = self.hand.claim(1)
        if expected in ("due", "closed"):
            [job] = claimed.jobs
            self.jobs[new] = job
            self.live.add(new)
            assert (job.id, bool(claimed.starts)) == (new, expected == "due")
            if expected == "due":
                assert claimed.starts[new].is_trial
                self.model.state, self.model.trial = "trial", new
            return f"met {expected}"
        assert claimed.jobs == []
        put_off = "select status, waits_for, extract(epoch from run_at - rota.clock())"
        [(status, waits_for, in_s)] = self.connection.execute(
            f"delete from rota.job where id = {new} returning {put_off[7:]}".encode()
        ).fetchall()
        assert (status, waits_for) == ("queued", "breaker mail")
        assert in_s == (self.model.until - self.now if expected == "open" else 60)
        return f"met {expected}"

    def end_trial(self) -> str | None:
        assert self.model.trial is not None
        return self._end(self.model.trial)

    def end_another(self) -> str | None:
        return self._end(self.chance.choice(sorted(self.jobs)))

    def _end(self, id_: int) -> str | None:
        job, health = self.jobs[id_], self.chance.choice(list(EndpointHealth))
        result = ops.EndpointResult(RULES, "", [], "no answer", health, job.id, job.claims)
        recorded = self.hand.record(result)
        assert recorded.change == self.model.end_trial(self.now, job.id, health)
        return recorded.change

    def lose_trial(self) -> str:
        assert self.model.trial is not None
        self.connection.execute(
            "update rota.job set claims = claims + 1, status = 'queued', "
            "run_at = '2100-01-01', locked_by = null, locked_until = null"
            " where id = %s",
            [self.model.trial],
        )
        self.live.discard(self.model.trial)
        return "lost"

    def look(self) -> None:
        """The state that a worker sees is that of the model."""
        asked = "select state from rota.breaker_state('mail', '')"
        found = self.connection.execute(asked).fetchone() or ("closed",)
        assert found == (self.model.look(self.now, self.live),)


@rule("M63")
def test_a_breaker_does_what_its_model_says(connection: psycopg.Connection[TupleRow]) -> None:
    connection.execute(CLOCK)
    changes: Counter[str | None] = Counter()
    for seed in range(WALKS):
        walk = Walk(connection, seed)
        for step in range(STEPS):
            try:
                changes[walk.turn()] += 1
                walk.look()
            except AssertionError as error:
                error.add_note(f"walk {seed}, step {step}: {walk.model}")
                raise
    every = {"opened", "closed", "reopened", "untried", "lost", "met trial", "met due", "met open"}
    assert every <= changes.keys()
