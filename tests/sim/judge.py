"""Judges a world from outside: by the ledgers of its handlers, and by what is left at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.kinds import KINDS

if TYPE_CHECKING:
    from tests.sim.server import Server

CAPACITY = {"lane": 2, "row": 1, "capped": 3}
"""How many jobs of a type, or of its group, may run at once."""
STARTS, PER_S, BURST = 20, 10.0, 5
"""Of the rate limit."""
FAILURES, OPEN_S = 3, 20.0
"""Of the breaker."""
SILENCE_S = 120.0
"""How long nothing may begin or end, once the world is well: a lease, the longest job, and what
else a job waits for."""
LEFT = """
  select format('job %%s %%s is %%s, %%s', id, job_type, status, coalesce(locked_by, waits_for))
  from rota.job
  where status not in ('dead', 'cancelled') or locked_by is not null or in_lane or capped
  union all
  select format('key %%s of job %%s is held', key, job) from rota.idempotency held
  where expires_at is null and not exists (select from rota.job where id = held.job)
  union all
  select format('breaker %%s is %%s', name, state) from rota.breaker
  where state = 'trial' or releasing
  union all
  select format('batch %%s is open', id) from rota.batch where outcome is null
  union all
  select format('worker %%s has not stopped', name) from rota.worker
  where stopped_at is null and name = any (%s)
"""
"""What must not be there when everything has ended."""


@dataclass(eq=False)
class Run:
    """A handler that runs, or ran."""

    job: int
    claim: int
    job_type: str
    worker: str
    group: str | None
    n: int
    began: float = 0.0
    ended: float | None = None
    has_failed: bool = False
    is_taken: bool = False
    """Whether a person took the job away meanwhile."""


class Judge:
    """The model."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.enqueued: set[int] = set()
        self.faults: list[str] = []
        self._runs: list[Run] = []
        self._running: defaultdict[int, list[Run]] = defaultdict(list)
        self._claims: dict[int, int] = {}
        self._finished: set[int] = set()
        """Jobs of which a run has ended without an error."""
        self._rows: dict[int, str] = {}
        self._batches: dict[int, list[int]] = {}
        self._paid: Counter[int] = Counter()
        self._kept_steps: set[int] = set()
        # What goes wrong, or is done by persons.
        self._excused: dict[str, float] = {}
        self._dead: set[str] = set()
        self._all_excused_until = -1.0
        self._touched: set[int] = set()
        self._stepped_at: list[float] = []
        self._troubled_at: list[float] = []
        self._down: list[tuple[float, float]] = []
        self._well_at = 0.0

    # What it is told of the world

    def note_enqueued(self, job: int, row: str | None = None) -> None:
        """A job is there; one of a row begins after those that were there before it."""
        self.enqueued.add(job)
        if row is not None:
            self._rows[job] = row

    def note_batch(self, number: int, members: list[int]) -> None:
        self.enqueued.update(members)
        self._batches[number] = members

    def note_touched(self, job: int) -> None:
        """A person takes a job from where it is; its worker, if it has one, does not know yet."""
        self._touched.add(job)
        for run in self._running[job]:
            run.is_taken = True

    def note_trouble(self) -> None:
        """Something went wrong: what a worker has found out may not have been written."""
        self._troubled_at.append(self._now())

    def note_death(self, worker: str) -> None:
        self.note_trouble()
        self._dead.add(worker)
        for runs in self._running.values():
            runs[:] = [run for run in runs if run.worker != worker]

    def note_freeze(self, worker: str, until: float) -> None:
        """Until it has noticed, its handlers may run beside those of others."""
        self.note_trouble()
        self._excused[worker] = max(self._excused.get(worker, 0.0), until + 15)

    def note_outage(self, until: float) -> None:
        self.note_trouble()
        self._all_excused_until = max(self._all_excused_until, until + 60)

    def note_step_of_clock(self) -> None:
        self.note_trouble()
        self._stepped_at.append(self._now())

    def note_endpoint_down(self, until: float) -> None:
        self._down.append((self._now(), until))

    def note_well(self) -> None:
        """From here on nothing goes wrong any more."""
        self._well_at = self._now()

    # What handlers tell it

    def begin(self, run: Run) -> None:
        run.began = self._now()
        if run.worker in self._dead:
            self.faults.append(f"job {run.job} begins on {run.worker}, which is dead")
        for other in self._list_running([run.job]):
            self.faults.append(
                f"job {run.job} runs twice at {run.began:.3f}: claim {other.claim} on "
                f"{other.worker} since {other.began:.3f}, claim {run.claim} on {run.worker}"
            )
        before = self._claims.get(run.job, 0)
        if run.claim <= before:
            self.faults.append(f"job {run.job} begins claim {run.claim} after claim {before}")
        if run.job_type == "row":
            self._look_at_order(run)
        self._claims[run.job] = run.claim
        self._running[run.job].append(run)
        self._runs.append(run)
        if run.job_type in CAPACITY:
            self._look_at_places(run)
        if run.job_type == "after" and (early := self._list_running(self._batches.get(run.n, ()))):
            self.faults.append(f"batch {run.n} is followed while {early[0].job} runs")

    def end(self, run: Run, *, is_finished: bool) -> None:
        run.ended = self._now()
        if is_finished:
            self._finished.add(run.job)
        if run in self._running[run.job]:
            self._running[run.job].remove(run)

    def note_paid(self, run: Run) -> None:
        """It did what must not happen twice."""
        if run.worker in self._dead:
            return
        self._paid[run.job] += 1
        if self._paid[run.job] > 1:
            self.faults.append(f"job {run.job} pays twice, by claim {run.claim} on {run.worker}")

    def note_step(self, run: Run) -> None:
        """It calls the function of its step."""
        if run.job in self._kept_steps:
            self.faults.append(f"job {run.job} repeats a step that was kept, on {run.worker}")

    def note_step_kept(self, run: Run) -> None:
        self._kept_steps.add(run.job)

    def note_joined(self, run: Run, outcomes: dict[int, str | None]) -> None:
        """It has waited for these jobs, and goes on."""
        for one in self._list_running(outcomes):
            self.faults.append(f"job {run.job} goes on while {one.job} runs")
        for job, outcome in outcomes.items():
            if outcome == "succeeded" and job not in self._finished:
                self.faults.append(f"job {run.job} has a result of {job}, which has not ended")

    def _list_running(self, jobs: Iterable[int]) -> list[Run]:
        """The runs of jobs that no fault excuses."""
        now = self._now()
        return [
            run
            for job in jobs
            for run in self._running[job]
            if not run.is_taken
            and now > self._excused.get(run.worker, -1.0)
            and now > self._all_excused_until
        ]

    def _look_at_places(self, run: Run) -> None:
        """Say so if more run at a time than there are places."""
        together = [
            one
            for one in self._list_running(list(self._running))
            if (one.job_type, one.group) == (run.job_type, run.group)
        ]
        if len(together) > CAPACITY[run.job_type]:
            whose = f"{run.job_type} {run.group}" if run.group else run.job_type
            self.faults.append(f"{len(together)} jobs of {whose} run at {self._now():.3f}")

    def _look_at_order(self, run: Run) -> None:
        """Say so if a job begins before one that was in its row before it."""
        passed = [
            job
            for job, row in self._rows.items()
            if row == run.group and job < run.job and job not in self._claims
        ]
        if run.job in self._rows and not self._stepped_at and not self._touched.issuperset(passed):
            self.faults.append(f"job {run.job} of row {run.group} begins before {passed}")

    # The end

    def look_at_the_end(self, server: Server, stopped: Iterable[str]) -> None:
        """Judge what is left when faults have stopped, time has passed, and these workers, which
        lived, were told to stop."""
        self.faults += [f"{what} at the end" for (what,) in server.query(LEFT, list(stopped))]
        self._look_at_limit()
        self._look_at_breaker()
        self._look_at_silence()
        self._look_at_jobs(server)
        follow_ups = Counter(
            n
            for (n,) in server.query(
                "select (payload ->> 'n')::int from rota.job_history where job_type = 'after'"
            )
        )
        for number in self._batches:
            if follow_ups[number] != 1:
                self.faults.append(f"batch {number} has {follow_ups[number]} follow-ups")
        keys = server.query(
            "select job_type, idempotency_key, count(*) from rota.job_history "
            "where idempotency_key is not null and status = 'succeeded' group by 1, 2"
        )
        self.faults += [f"key {key} of {name} has {n} jobs" for name, key, n in keys if n > 1]

    def _look_at_jobs(self, server: Server) -> None:
        """Each job is over once. An attempt is charged that began and failed, or was lost; and a
        job that has attempts left does not die."""
        history = defaultdict(list)
        for job, *row in server.query("select id, status, attempts, claims from rota.job_history"):
            history[job].append(row)
        dead = {
            job: (name, attempts)
            for job, name, attempts in server.query(
                "select id, job_type, attempts from rota.job where status = 'dead'"
            )
        }
        for job in sorted(self.enqueued - set(dead)):
            if (times := len(history.get(job, []))) != 1:
                self.faults.append(f"job {job} is {times} times in history")
        begun = Counter(run.job for run in self._runs)
        is_calm = not (self._troubled_at or self._touched)
        for job, [(status, attempts, claims), *_] in sorted(history.items()):
            if status == "succeeded" and job not in self._finished:
                self.faults.append(f"job {job} succeeded and has not ended")
            if attempts > claims or (is_calm and attempts > begun[job]):
                self.faults.append(f"job {job} began {begun[job]} times, charged are {attempts}")
        for job, (name, attempts) in sorted(dead.items()):
            if name != "once" and attempts < KINDS[name].get("max_attempts", 10):
                self.faults.append(f"job {job} {name} is dead after {attempts} attempts")

    def _look_at_limit(self) -> None:
        """A window that contains a step of the server's clock may have one burst more."""
        starts = sorted(run.began for run in self._runs if run.job_type == "limited")
        for at in starts:
            window = [one for one in starts if at <= one < at + PER_S]
            stepped = any(at - PER_S <= one < at + 2 * PER_S for one in self._stepped_at)
            if len(window) > STARTS + BURST * (1 + stepped):
                self.faults.append(f"{len(window)} starts in {PER_S} s from {at:.3f}")
                return

    def _look_at_breaker(self) -> None:
        """While the endpoint is down, and nothing else is wrong, one job tries in each time for
        which the breaker is open."""
        calls = [run for run in self._runs if run.job_type == "calls"]
        for down, up in self._down:
            failed = sorted(
                run.ended or up for run in calls if run.has_failed and run.began >= down
            )
            if len(failed) < FAILURES or any(down - 60 < at < up for at in self._troubled_at):
                continue
            opened = min(failed[FAILURES - 1] + 3, up)
            trials = [run.began for run in calls if opened <= run.began < up]
            if len(trials) > 1 + (up - opened) / (OPEN_S * 0.9):
                self.faults.append(f"{len(trials)} trials from {opened:.1f} to {up:.1f}")

    def _look_at_silence(self) -> None:
        at = self._well_at
        moments = [moment for run in self._runs for moment in (run.began, run.ended or at)]
        for then in sorted(moment for moment in moments if moment > at and not self._stepped_at):
            if then - at > SILENCE_S:
                self.faults.append(f"nothing begins or ends from {at:.1f} to {then:.1f}")
            at = then
