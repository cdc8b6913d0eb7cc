"""The store against a small model of it: whatever is done in whatever order, rows and keys are what
the model says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    run_state_machine_as_test,
)
from hypothesis.stateful import rule as step
from psycopg.rows import TupleRow

from rota.model.job import Action, Enqueued, Job, Status
from rota.model.settle import Transition
from rota.model.states import TRANSITIONS
from rota.store import ops
from tests.store.rows import row
from tests.store.work import BEGINNING, CANCEL, FAIL, GIVE_UP, HAND_BACK, SNOOZE, SUCCEED, Hand, act
from tests.support.rules import rule

LEASE_S = RETRY_S = SNOOZE_S = 60
"""Of the transitions in `work`, and of the plan below."""
STEP_S = 100
EXPIRES_S = 150
MAX_ATTEMPTS = 3

# Only the steps move it, so that a slow machine changes no answer.
CLOCK = """create
  or replace function rota.clock() returns timestamptz language sql stable parallel safe as $$
  select '2026-01-14 09:00+00'::timestamptz
    + pg_catalog.make_interval(secs => coalesce(pg_catalog.current_setting('test.ahead_s', true),
      '0')::float8) $$"""


@dataclass
class Model:
    """What is known of one job."""

    job_type: str
    key: str | None
    due_at: float
    status: str = "queued"
    attempts: int = 0
    claims: int = 0
    losses: int = 0
    started: bool = False
    """Whether the start of the claim that runs was recorded."""
    leased_until: float = 0
    expires_at: float | None = None

    asked: bool = False
    """Whether it was cancelled."""

    def leave(self, verb: str, *, charged: bool = True, due_at: float | None = None) -> None:
        """Go out of `running`, by a transition that there is."""
        self.status = TRANSITIONS[Status(self.status), verb].value
        self.claims += 1
        self.attempts -= not charged
        if due_at is not None:
            self.due_at = due_at
        if self.asked and self.status != "dead":
            self.status = TRANSITIONS[Status(self.status), "cancel"].value


class Store(RuleBasedStateMachine):
    """Everything that producers, workers and the reaper do."""

    connection: psycopg.Connection[TupleRow]
    claims: Bundle[Job] = Bundle("claims")

    @initialize()
    def begin(self) -> None:
        self.connection.execute(
            "truncate rota.job, rota.idempotency, rota.job_history, rota.attempt, rota.queue"
        )
        self.connection.execute("set test.ahead_s = 0")
        self.ahead = 0.0
        self.jobs: dict[int, Model] = {}
        self.keys: dict[tuple[str, str], int] = {}
        self.hand = Hand(self.connection, types=["t", "u"])

    # Producers

    @step(
        job_type=st.sampled_from(["t", "u"]),
        key=st.sampled_from([None, "a", "b"]),
        delay_s=st.sampled_from([0, 60]),
        expires_s=st.sampled_from([None, EXPIRES_S]),
    )
    def enqueue(self, job_type: str, key: str | None, delay_s: int, expires_s: int | None) -> None:
        done = self.hand.run(ops.insert(_new(job_type, key, delay_s, expires_s)))
        self._inserted(done, job_type, key, delay_s)
        if done.created and expires_s is not None:
            self.jobs[done.id].expires_at = self.ahead + delay_s + expires_s

    @step(
        given=st.lists(
            st.tuples(st.sampled_from(["t", "u"]), st.sampled_from([None, "a", "b", "c"])),
            min_size=1,
            max_size=6,
        )
    )
    def enqueue_many(self, given: list[tuple[str, str | None]]) -> None:
        with self.connection.transaction():
            done = self.hand.run(
                ops.insert_many([_new(job_type, key, 0) for job_type, key in given])
            )
        assert [one.id for one in done if one.created] == sorted(
            one.id for one in done if one.created
        )
        for one, (job_type, key) in zip(done, given, strict=True):
            self._inserted(one, job_type, key, 0)

    def _inserted(self, done: Enqueued, job_type: str, key: str | None, delay_s: float) -> None:
        holder = self.keys.get((job_type, key)) if key is not None else None
        if holder is not None:
            assert done == Enqueued(holder, False, self.jobs[holder].status)
            return
        assert done.created and done.id not in self.jobs
        self.jobs[done.id] = Model(job_type, key, self.ahead + delay_s)
        if key is not None:
            self.keys[job_type, key] = done.id

    # Workers

    @step(target=claims, limit=st.integers(1, 4), types=st.sampled_from([["t"], ["u"], ["t", "u"]]))
    def claim(self, limit: int, types: list[str]) -> Any:
        self.hand.types = types
        due = [
            id_
            for id_, job in self.jobs.items()
            if job.status in ("queued", "failed")
            and job.due_at <= self.ahead
            and job.job_type in types
        ]
        claimed = self.hand.claim(limit)
        found = claimed.jobs
        assert len(found) == min(limit, len(due)) and {job.id for job in found} <= set(due)
        assert [(job.run_at, job.id) for job in found] == sorted(
            (job.run_at, job.id) for job in found
        )
        for job in found:
            model = self.jobs[job.id]
            model.status, model.leased_until = "running", self.ahead + LEASE_S
            model.attempts += 1
            model.claims += 1
            model.started = False
            assert (job.attempts, job.claims) == (model.attempts, model.claims)
            assert job.losses == model.losses
            assert (job.id in claimed.unrecorded) is (model.losses > 0)
        return multiple(*found)

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def start(self, jobs: list[Job]) -> None:
        asked = [job for job in jobs if job.losses]
        held = self._held(asked)
        assert self.hand.start(*asked) == held
        for id_ in held:
            self.jobs[id_].started = True

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def succeed(self, jobs: list[Job]) -> None:
        for model in self._settle(jobs, SUCCEED):
            model.status = "succeeded"

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def cancel(self, jobs: list[Job]) -> None:
        for model in self._settle(jobs, CANCEL):
            model.status = "cancelled"

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def fail(self, jobs: list[Job]) -> None:
        for model in self._settle(jobs, FAIL):
            model.leave("fail", due_at=self.ahead + RETRY_S)

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def give_up(self, jobs: list[Job]) -> None:
        for model in self._settle(jobs, GIVE_UP):
            model.leave("give_up")

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def snooze(self, jobs: list[Job]) -> None:
        for model in self._settle(jobs, SNOOZE):
            model.leave("snooze", charged=False, due_at=self.ahead + SNOOZE_S)

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def hand_back(self, jobs: list[Job]) -> None:
        for model in self._settle(jobs, HAND_BACK):
            model.leave("hand_back", charged=False)

    def _settle(self, jobs: list[Job], transition: Transition) -> list[Model]:
        held = self._held(jobs)
        assert set(self.hand.settle(*((job, transition) for job in jobs))) == held
        return [self.jobs[id_] for id_ in held]

    @step(jobs=st.lists(claims, max_size=4, unique_by=lambda job: job.id))
    def renew(self, jobs: list[Job]) -> None:
        self.hand.types = ["t", "u"]
        held = self._held(jobs)
        assert self.hand.renew(*jobs) == held
        for id_ in held:
            self.jobs[id_].leased_until = self.ahead + LEASE_S

    def _held(self, jobs: list[Job]) -> set[int]:
        return {
            job.id
            for job in jobs
            if (self.jobs[job.id].status, self.jobs[job.id].claims) == ("running", job.claims)
        }

    # Time

    @step()
    def reap(self) -> None:
        expired = {
            id_
            for id_, job in self.jobs.items()
            if job.status == "running" and job.leased_until < self.ahead
        }
        reaped = {lost.job: lost.status for lost in self.hand.reap()}
        assert set(reaped) == expired
        for id_, status in reaped.items():
            model = self.jobs[id_]
            if not model.started:
                model.leave("recover_uncharged", charged=False)
                model.losses += not model.losses
            else:
                last = model.attempts >= MAX_ATTEMPTS
                model.leave(
                    "recover_finally" if last else "recover",
                    due_at=None if last else self.ahead + RETRY_S,
                )
                model.losses += 1
            assert status == model.status

    @step()
    def expire(self) -> None:
        waits = {
            id_: job
            for id_, job in self.jobs.items()
            if job.status in ("queued", "failed") and job.expires_at is not None
        }
        late = {
            id_
            for id_, job in waits.items()
            if job.expires_at is not None and job.expires_at < self.ahead
        }
        assert {gone.job for gone in self.hand.run(ops.expire("w", BEGINNING, 0, 500))[1]} == late
        for id_ in late:
            self.jobs[id_].status = TRANSITIONS[Status(self.jobs[id_].status), "expire"].value

    @step()
    def time_goes_by(self) -> None:
        self.ahead += STEP_S
        self.connection.execute(f"set test.ahead_s = {self.ahead}".encode())

    # People

    @step(chosen=st.lists(st.integers(0, 30), min_size=1, max_size=4))
    def request_cancel(self, chosen: list[int]) -> None:
        ids = sorted(
            {sorted(self.jobs)[at % len(self.jobs)] for at in chosen} if self.jobs else {4711}
        )
        answers = self.hand.run(act(Action.CANCEL, *ids, why="not wanted"))
        assert [one.job for one in answers] == ids
        for one in answers:
            model = self.jobs.get(one.job)
            if model is None or model.status in ("dead", "succeeded", "cancelled"):
                assert (one.answer, one.status) == (
                    ("refused", model.status) if model else ("not found", None)
                )
            elif model.status == "running":
                model.asked = True
                assert (one.answer, one.status) == ("requested", "running")
            else:
                model.status = TRANSITIONS[Status(model.status), "cancel"].value
                assert (one.answer, one.status) == ("cancelled", "cancelled")

    # What always holds

    @invariant()
    def rows_are_what_the_model_says(self) -> None:
        rows = self.connection.execute(
            "select id, status, attempts, claims from rota.jobs"
        ).fetchall()
        ended = ("succeeded", "cancelled")
        expected = [(id_, job.status, job.attempts, job.claims) for id_, job in self.jobs.items()]
        assert sorted(rows) == sorted(expected)
        over = {
            row[0] for row in self.connection.execute("select id from rota.job_history").fetchall()
        }
        assert over == {id_ for id_, job in self.jobs.items() if job.status in ended}

    @invariant()
    def what_was_cancelled_is_neither_due_nor_will_be(self) -> None:
        waiting = self.connection.execute(
            "select id from rota.job where cancel_requested_at is not null and status not in "
            "('running', 'dead')"
        )
        assert waiting.fetchall() == []

    @invariant()
    def keys_are_held_by_whom_the_model_says(self) -> None:
        held = {
            (row[0], row[1]): row[2]
            for row in self.connection.execute(
                "select job_type, key, job from rota.idempotency"
            ).fetchall()
        }
        self.keys = {
            key: id_ for key, id_ in self.keys.items() if self.jobs[id_].status != "cancelled"
        }
        assert held == self.keys


def _new(
    job_type: str, key: str | None, delay_s: float, expires_s: float | None = None
) -> ops.NewRow:
    return row(
        job_type,
        idempotency_key=key,
        queue="default",
        priority=0,
        delay_s=delay_s or None,
        expires_s=expires_s,
    )


@rule("M11", "M30", "M32", "M36", "M51", "M87")
def test_the_store_does_what_its_model_says(connection: psycopg.Connection[TupleRow]) -> None:
    connection.execute(CLOCK.encode())
    connection.execute("select rota.partitions_ensure(1)")
    connection.execute(
        "insert into rota.job_type (name, max_attempts, retry_after) select name, %s, "
        "array[make_interval(secs => %s)] from unnest('{t,u}'::text[]) name",
        [MAX_ATTEMPTS, RETRY_S],
    )
    Store.connection = connection
    run_state_machine_as_test(
        Store, settings=settings(max_examples=30, stateful_step_count=40, deadline=None)
    )
