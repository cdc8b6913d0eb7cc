"""Attempts whose types have gates that ask the database: how they wait, and what becomes of them.

The gate here is one of the test's own, which says what the test tells it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import rota
from rota.model.outcome import End, HandedBack
from rota.observe.events import JobClaimed, JobHandedBack, JobSucceeded
from rota.worker.attempt import Attempt
from rota.worker.gates import Answers, Gate, Park
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows

FAR_S = 600.0
NAMES = "select application_name from pg_stat_activity where datname = current_database()"


class OwnGate(Gate):
    """Answers what the test has put into it, and keeps what it was asked."""

    is_first = True

    def __init__(self) -> None:
        self.again = set()
        self.answers: list[float | End | None] = []
        """The next answers without a slot; then all may begin."""
        self.looks: list[Park | End | None] = []
        """The next answers to those that are about to begin."""
        self.asked: list[list[int]] = []
        self.asked_in_slot: list[list[int]] = []
        self.ended: list[int] = []

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        return [attempt for attempt in claimed if attempt.job.job_type == "gated"]

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        self.asked.append([attempt.job.id for attempt in batch])
        found = [(one, self.answers.pop(0)) for one in batch if self.answers]
        return {attempt: answer for attempt, answer in found if answer is not None}

    def look(self, attempt: Attempt, now: float) -> Park | End | None:
        return self.looks.pop(0) if self.looks else None

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        self.asked_in_slot.append([attempt.job.id for attempt in batch])
        return {}

    def note_end(self, attempt: Attempt) -> bool:
        self.ended.append(attempt.job.id)
        return False


def make_jobs() -> rota.Jobs:
    """Two types: one with a gate, one without."""
    jobs = rota.Jobs()

    @jobs.job("gated")
    async def gated() -> None: ...

    @jobs.job("plain")
    async def plain() -> None: ...

    return jobs


def gated_hand(database: str, gate: OwnGate, **config: Any) -> Hand:
    """A worker with that gate."""
    hand = Hand(database, make_jobs(), **config)
    worker: Any = hand.worker
    make_gates = worker.make_gates
    gate.types = frozenset([hand.worker._spec.types["gated"]])
    worker.make_gates = lambda link, finisher: [gate, *make_gates(link, finisher)]
    return hand


@rule("M62", "M63")
async def test_a_job_that_is_handed_back_is_not_charged_and_says_what_it_waits_for(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.answers = [HandedBack("its turn has not come", 60.0, "limit smtp")]
    job = put(connection, "gated")
    async with gated_hand(database, gate) as hand:
        back = await hand.heard(JobHandedBack, job=job)
    assert "returned to the queue for 60.0 s: its turn has not come" in back.text()
    assert rows(
        connection,
        "select status, attempts, losses, waits_for, run_at > rota.clock() + interval '50 s' "
        "from rota.job",
    ) == [("queued", 0, None, "limit smtp", True)]


@rule("M62")
async def test_a_job_that_waits_at_a_gate_takes_no_slot_and_keeps_its_lease(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.answers = [time.monotonic() + 4]
    job = put(connection, "gated")
    async with gated_hand(database, gate, slots=1, lease_s=1.0, poll_s=0.1) as hand:
        other = put(connection, "plain")
        await hand.heard(JobSucceeded, job=other)
        await hand.heard(JobSucceeded, job=job)
        assert [event.job for event in hand.events if isinstance(event, JobSucceeded)] == [
            other,
            job,
        ]
        claims = [event for event in hand.events if isinstance(event, JobClaimed)]
        assert [event.claim for event in claims if event.job == job] == [1]


@rule("M62")
async def test_a_job_that_is_to_be_asked_for_while_its_gate_answers_is_asked_for_again(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.answers = [time.monotonic() + FAR_S]
    job = put(connection, "gated")
    hand = gated_hand(database, gate)
    ask = gate.ask

    async def ask_meanwhile(batch: Sequence[Attempt]) -> Answers:
        hand.worker.parts.gatekeeper.ask_again(batch[0])
        return await ask(batch)

    gate.ask = ask_meanwhile  # type: ignore[method-assign]
    async with hand:
        await hand.heard(JobSucceeded, job=job)
    assert len(gate.asked) == 2


async def test_a_job_that_waits_at_a_gate_is_handed_back_when_its_worker_stops(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.answers = [time.monotonic() + FAR_S]
    job = put(connection, "gated")
    async with gated_hand(database, gate) as hand:
        await hand.heard(JobClaimed, job=job)
    [back] = [event for event in hand.events if isinstance(event, JobHandedBack)]
    assert back.why == "the worker is going down"
    assert rows(connection, "select status, attempts from rota.job") == [("queued", 0)]
    assert gate.ended == [job]


async def test_an_attempt_about_to_begin_is_asked_for_again_in_its_slot(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.looks = [Park.IN_SLOT]
    job = put(connection, "gated")
    connection.execute("update rota.job set losses = 1")  # its start is recorded after that
    async with gated_hand(database, gate, slots=1) as hand:
        await hand.heard(JobSucceeded, job=job)
    assert (gate.asked, gate.asked_in_slot, gate.ended) == ([[job]], [[job]], [job])


async def test_an_attempt_about_to_begin_goes_back_to_the_gate_without_its_slot(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.looks = [Park.WITHOUT_SLOT]
    job = put(connection, "gated")
    async with gated_hand(database, gate, slots=1) as hand:
        await hand.heard(JobSucceeded, job=job)
        group = hand.worker.parts.executor.groups[0]
        assert (group.running, group.waiting, group.coming) == (0, 0, 0)
    assert gate.asked == [[job], [job]]


@rule("M33")
async def test_a_suspect_that_goes_back_to_the_gate_does_not_wait_for_itself(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.looks = [Park.WITHOUT_SLOT]
    job = put(connection, "gated")
    connection.execute("update rota.job set losses = 1, error_type = 'LeaseExpired'")
    async with gated_hand(database, gate, slots=1, buffer_s=10.0) as hand:
        await hand.heard(JobSucceeded, job=job)
        claims = [event.claim for event in hand.events if isinstance(event, JobClaimed)]
    assert claims == [1]


async def test_ten_thousand_jobs_that_are_handed_back_pass_in_few_claims(
    database: str, connection: Connection
) -> None:
    gate = OwnGate()
    gate.answers = [HandedBack("its turn has not come", FAR_S, "limit smtp")] * 10_000
    connection.execute(
        "insert into rota.job (queue, job_type, priority) "
        "select 'default', 'gated', 0 from generate_series(1, 10000)"
    )
    last = put(connection, "plain")
    async with gated_hand(database, gate, slots=10) as hand:
        await hand.heard(JobSucceeded, job=last)
    assert len(gate.asked) < 100


async def test_a_worker_whose_jobs_pass_no_gates_opens_no_connection_for_them(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    jobs.job("plain")(_nothing)
    job = put(connection, "plain")
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, job=job)
        names = {name for (name,) in rows(connection, NAMES)}
    assert "rota claim" in names and "rota gates" not in names


async def _nothing() -> None: ...
