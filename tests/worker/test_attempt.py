"""The states of an attempt, and the verbs that lead from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

import rota
from rota.model.outcome import Cancel, End, HandedBack, Succeeded
from rota.worker.attempt import TRANSITIONS, Attempt, State
from tests.support.job import make_job
from tests.support.rules import rule

NOW = 1_000.0
DONE = Succeeded(None)
LOST = HandedBack("its lease was lost")

VERBS: dict[str, Callable[[Attempt], None]] = {
    "admit": lambda attempt: Attempt.admit([attempt]),
    "begin": lambda attempt: Attempt.begin([attempt], None, lambda _: rota.context()),
    "stop": lambda attempt: attempt.stop(LOST, "lost", NOW),
    "end": lambda attempt: attempt.end(DONE, NOW),
    "lose": lambda attempt: attempt.lose(),
    "abandon": lambda attempt: attempt.abandon(),
}


def make_attempt(*done: str) -> Attempt:
    """An attempt to which this was done."""
    jobs = rota.Jobs()

    @jobs.job("t")
    def t() -> None: ...

    job = make_job()
    attempt = Attempt(job, t._declaration, NOW, 60.0)
    for verb in done:
        VERBS[verb](attempt)
    return attempt


@rule("M32")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", State)
def test_a_verb_leads_where_the_table_says_and_is_refused_everywhere_else(
    state: State, verb: str
) -> None:
    attempt = make_attempt()
    attempt.state = state
    if (state, verb) in TRANSITIONS:
        VERBS[verb](attempt)
        assert attempt.state is TRANSITIONS[state, verb]
    else:
        with pytest.raises(AssertionError, match=f"cannot {verb} an attempt that is {state}"):
            VERBS[verb](attempt)
        assert attempt.state is state


def test_the_table_knows_every_state_and_no_other_verb() -> None:
    assert {verb for _, verb in TRANSITIONS} == VERBS.keys()
    assert {state for state, _ in TRANSITIONS} == set(State)


@rule("M32")
def test_what_another_claim_has_stays_lost_whatever_its_handler_does() -> None:
    attempt = make_attempt("admit", "begin", "lose", "stop", "end", "abandon")
    assert attempt.is_lost and attempt.is_over


@rule("M35")
def test_the_first_deadline_of_a_stop_stands_with_its_outcome() -> None:
    attempt = make_attempt("admit", "begin")
    attempt.stop(Cancel("not needed"), "cancelled")
    assert attempt.stop_deadline == inf
    attempt.stop(LOST, "lost", NOW + 1)
    attempt.stop(HandedBack("the worker is going down"), "down", NOW)
    assert attempt.stop_outcome is LOST
    assert attempt.stop_deadline == NOW + 1


@rule("M87")
def test_a_stop_that_comes_with_the_first_step_is_seen_there() -> None:
    attempt = make_attempt("admit", "begin", "stop")
    seen: End | None = attempt.take_first_step(NOW)
    assert isinstance(seen, HandedBack)
    assert attempt.began_at is None, "what did not begin is not charged"


def test_a_lease_is_kept_from_the_slot_on() -> None:
    attempt = make_attempt()
    assert not attempt.keeps_lease
    Attempt.admit([attempt])
    assert attempt.keeps_lease
