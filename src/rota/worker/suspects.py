"""Lets few suspects begin at once. Suspects are jobs whose worker was lost with them, and any of
them may have killed it. So after each loss a quarter as many begin together: soon the job at fault
is alone, and only that job is charged. A call of many jobs is a turn of many suspects."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.model.outcome import HandedBack
from rota.runtime.clock import Clock
from rota.worker.attempt import Attempt

TOGETHER_MAX = 64
"""A quarter of so many jobs begin together after one loss, a sixteenth after two losses, and so on.
Of a type with `chunk`, a quarter of a call."""
SHARE = 4
"""A worker that dies costs a lease. With a quarter, the one job of a thousand that kills its worker
is alone after five losses; with a half after ten."""
SURVIVED_S = 1.0
"""Seconds after which a running job lets the next begin, if lost once: long jobs must not wait."""
SURVIVED_S_MAX = 60.0
"""The longest of these times: each further loss makes the time four times as long."""
WAITING_MAX = 1_000
"""Most suspects that wait for their turns in one worker; further suspects are handed back."""
TURN_S = (1.0, 30.0)
"""The shortest and the longest delay of a suspect that is handed back, in seconds."""
ASK_AGAIN_S = 0.1
"""Seconds between checks while a suspect that may begin has not begun."""


class Suspects:
    """The suspects that may begin, run, or have ended unwritten: until its outcome is written, a
    suspect would be charged for another's crash."""

    def __init__(self, clock: Clock, wait_s: float) -> None:
        """A suspect that waits longer than `wait_s` is handed back."""
        self._clock = clock
        self._wait_s = wait_s
        self._let_in: dict[Attempt, int] = {}
        """How many suspects may be together while each is one of them."""
        self._waiting: dict[Attempt, float] = {}
        """Since when each waits for its turn."""
        self._turns = 0
        """How many turns there were since `_turns_since`."""
        self._turns_since = clock.monotonic()

    @property
    def waiting(self) -> Collection[Attempt]:
        return self._waiting.keys()

    def ask(self, asked: Sequence[Attempt]) -> dict[Attempt, float | HandedBack]:
        """Let suspects begin, in order, as many as may be together. Return the others, each with
        its outcome or when to ask again. A suspect that comes alone stays alone: then the fault is
        known."""
        now = self._clock.monotonic()
        running: dict[Attempt, float] = {}
        losses = room = -1
        for place, attempt in enumerate(asked):
            if attempt.job.losses != losses:
                losses = attempt.job.losses
                running = self._find_running(losses, now)
                room = min(map(self._let_in.__getitem__, running), default=_count_together(attempt))
            is_alone = len(asked) == 1 and not running
            most = 1 if is_alone else _count_together(attempt)
            room = min(room, most)
            if len(running) >= room:
                return self._let_wait(asked[place:], min(running.values()), now)
            self._waiting.pop(attempt, None)
            self._let_in[attempt] = most
            attempt.shares_turn = most > 1
            running[attempt] = now + ASK_AGAIN_S
            self._turns += 1
        return {}

    def _find_running(self, losses: int, now: float) -> dict[Attempt, float]:
        """Return the suspects that a job with so many losses waits for, and until when."""
        times = {suspect: _survives_at(suspect, losses, now) for suspect in self._let_in}
        return {suspect: at for suspect, at in times.items() if at > now}

    def _let_wait(
        self, attempts: Sequence[Attempt], until: float, now: float
    ) -> dict[Attempt, float | HandedBack]:
        """Return the answers for suspects that may not begin now. Suspects that would wait too long
        come again at the pace of the turns, or they would be claimed ahead of other jobs again and
        again."""
        answers: dict[Attempt, float | HandedBack] = {}
        least_s, most_s = TURN_S
        each_s = (now - self._turns_since) / max(1, self._turns)
        handed_back = 0
        for attempt in attempts:
            has_room = attempt in self._waiting or len(self._waiting) < WAITING_MAX
            if has_room and now - self._waiting.setdefault(attempt, now) < self._wait_s:
                answers[attempt] = until
            else:
                delay_s = min(least_s + handed_back * each_s, most_s)
                answers[attempt] = HandedBack("it waited too long for its turn", delay_s)
                handed_back += 1
        if handed_back:
            self._turns, self._turns_since = 0, now
        return answers

    def forget(self, attempt: Attempt) -> None:
        self._waiting.pop(attempt, None)

    def note_written(self, attempt: Attempt) -> None:
        """Note that the outcome of a suspect is written, or never will be."""
        self._let_in.pop(attempt, None)


def _count_together(attempt: Attempt) -> int:
    """Return how many suspects may be together with this suspect, itself included."""
    if attempt.max_attempts == 1 or attempt.job_type.rules.dead_if_lost:
        return 1  # its loss is charged, whoever was at fault
    chunk = attempt.job_type.chunk
    most = TOGETHER_MAX if chunk is None else chunk.jobs_max
    return max(1, int(most // SHARE**attempt.job.losses))


def _survives_at(suspect: Attempt, losses: int, now: float) -> float:
    """Return when a suspect has run long enough for a suspect with so many losses to begin."""
    if suspect.began_at is None:
        return now + ASK_AGAIN_S
    most = max(suspect.job.losses, losses)
    return suspect.began_at + min(SURVIVED_S * 4.0 ** (most - 1), SURVIVED_S_MAX)
