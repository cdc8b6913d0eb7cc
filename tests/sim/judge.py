"""Judges a world from outside: by the ledgers of its handlers, and by what is left at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.sim.kinds import KINDS

if TYPE_CHECKING:
    from tests.sim.server import Server

CAPACITY = {"lane": 2, "row": 1, "capped": 3}
"""How many jobs of a type, or of its group, may run at once."""
STARTS, PER_S, BURST = 20, 10.0, 5
"""Of the rate limit."""
TOLD_S, HEARD_S = 10.0, 2.0
"""How long a handler of that limit is told to wait now and then, and until all workers know."""
FAILURES, OPEN_S = 3, 20.0
"""Of the breaker."""
PROMPT = {"plain", "urgent", "flaky", "keyed", "pays", "parent", "once"}
PROMPT_S = 3.0
"""How soon a job of these types begins that is due, if nothing was ever wrong and none of the
workers was full: three polls, if nobody told of it."""
SLOTS = 6
"""Of a worker."""
RESTS_MAX, LOOKS_MAX = 0.5, 2.2
"""Most statements a second when nothing is left to do: of each worker, and of the one of each
release that looks for the others."""
NEW_S = 5.0
"""Until a worker has asked what the server's clock says, and whoever else asks."""
SILENCE_S = 120.0
"""How long nothing may begin or end, once the world is well: a lease, the longest job, and what
else a job waits for."""
LOST_S = 90.0
"""How long the leases of a dead worker may last: theirs, and what others get after an outage or a
step of the clock."""
HELD = """
  select format('job %%s is held by %%s, which has died', id, locked_by) from rota.job
  where status = 'running' and locked_by = any (%s)
"""
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
        self._due: dict[int, float] = {}
        """When each job was there and due that has not begun."""
        self._full_at = 0.0
        """When so many jobs ran last that one worker may have had no slot."""
        self._told: list[float] = []
        self._lost: list[tuple[int, int]] = []
        """The claims that workers say they have lost."""
        self._batches: dict[int, list[int]] = {}
        self._paid: Counter[int] = Counter()
        self._kept_steps: set[int] = set()
        # What goes wrong, or is done by persons.
        self._excused: dict[str, float] = {}
        self._dead: set[str] = set()
        self._all_excused_until = -1.0
        self._touched: set[int] = set()
        self._stepped_at: list[float] = []
        self._started_at = 0.0
        self._troubled_at: list[float] = []
        self._down: list[tuple[float, float]] = []
        self._well_at = 0.0

    # What it is told of the world

    def note_enqueued(self, job: int, due: float, row: str | None = None) -> None:
        """A job is there, and due then; one of a row begins after those that were there before
        it."""
        self.enqueued.add(job)
        if job not in self._claims:
            self._due[job] = max(due, self._now())
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
        self._all_excused_until = max(self._all_excused_until, until + 10)

    def note_step_of_clock(self) -> None:
        self.note_trouble()
        self._stepped_at.append(self._now())
        self._excuse_new()

    def note_start(self) -> None:
        self._started_at = self._now()
        self._excuse_new()

    def _excuse_new(self) -> None:
        """A worker that begins within seconds of a step does not know of it, and finds that the
        leases of all others are over."""
        now = self._now()
        if now - max([-NEW_S, *self._stepped_at]) < NEW_S > now - self._started_at:
            self._all_excused_until = max(self._all_excused_until, now + 60)

    def note_pause(self, until: float) -> None:
        """Nothing is claimed for a while, because a person wants it so."""
        self._full_at = max(self._full_at, until)

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
        self._look_at_wait(run)
        self._claims[run.job] = run.claim
        self._running[run.job].append(run)
        self._runs.append(run)
        self._note_full()
        if run.job_type in CAPACITY:
            self._look_at_places(run)
        if run.job_type == "after" and (early := self._list_running(self._batches.get(run.n, ()))):
            self.faults.append(f"batch {run.n} is followed while {early[0].job} runs")

    def end(self, run: Run, *, is_finished: bool) -> None:
        run.ended = self._now()
        self._note_full()
        if is_finished:
            self._finished.add(run.job)
        if run in self._running[run.job]:
            self._running[run.job].remove(run)

    def note_told_to_wait(self) -> None:
        """It is told that nothing more is wanted for TOLD_S."""
        self._told.append(self._now())

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

    # What workers say

    def note_lost(self, job: int, claim: int) -> None:
        """A worker has discarded an outcome, because another claim has the job."""
        self._lost.append((job, claim))

    def look_at_rest(self, per_s: float, workers: int, releases: int) -> None:
        """Nothing is left to do, and these workers make so many statements a second."""
        if per_s > workers * RESTS_MAX + releases * LOOKS_MAX:
            self.faults.append(f"{workers} idle workers make {per_s:.1f} statements a second")

    def look_at_a_stop(self, worker: str, unwritten: Iterable[int], server: Server) -> None:
        """A worker has stopped: it names the jobs whose outcomes it could not write, and gives back
        all others."""
        asked = "select id, claims from rota.job where status = 'running' and locked_by = %s"
        held = dict(server.query(asked, worker))
        for job in sorted(held.keys() - set(unwritten)):
            runs = [one for one in self._runs if (one.job, one.claim) == (job, held[job])]
            if runs or not self._troubled_at:
                self.faults.append(f"{worker} stops and does not say that it leaves job {job}")

    def look_at_the_dead(self, server: Server) -> None:
        """Say so if one that died still holds a job, LOST_S after the last fault."""
        self.faults += [what for (what,) in server.query(HELD, sorted(self._dead))]

    def _note_full(self) -> None:
        if sum(map(len, self._running.values())) >= SLOTS:
            self._full_at = max(self._full_at, self._now())

    def _look_at_wait(self, run: Run) -> None:
        due = self._due.pop(run.job, None)
        if due is None or run.job_type not in PROMPT or self._troubled_at or self._touched:
            return
        waited_s = run.began - max(due, self._full_at)
        if waited_s > PROMPT_S:
            self.faults.append(f"job {run.job} begins after {waited_s:.1f} s at {run.began:.3f}")

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
            "where idempotency_key is not null and status = 'succeeded' and job_type <> 'pending' "
            "group by 1, 2"
        )
        self.faults += [f"key {key} of {name} has {n} jobs" for name, key, n in keys if n > 1]

    def _look_at_jobs(self, server: Server) -> None:
        """Each job is over once, and one that has attempts left does not die."""
        history = defaultdict(list)
        for job, *row in server.query("select id, status, attempts, claims from rota.job_history"):
            history[job].append(row)
        dead = "select id, job_type, attempts from rota.job where status = 'dead'"
        for job, name, attempts in server.query(dead):
            history[job] = history[job] or [["dead", attempts, attempts]]
            if name != "once" and attempts < KINDS[name].get("max_attempts", 10):
                self.faults.append(f"job {job} {name} is dead after {attempts} attempts")
        for job in sorted(self.enqueued):
            if (times := len(history.get(job, []))) != 1:
                self.faults.append(f"job {job} is {times} times in history")
        for job, claim in self._lost:
            if [one[::2] for one in history.get(job, ())] == [["succeeded", claim]]:
                self.faults.append(f"job {job} succeeded by claim {claim}, said to be lost")
        self._look_at_attempts(history)

    def _look_at_attempts(self, history: dict[int, list[Any]]) -> None:
        """An attempt is charged that began and failed, or was lost."""
        begun = Counter(run.job for run in self._runs)
        is_calm = not (self._troubled_at or self._touched)
        for job, [(status, attempts, claims), *_] in sorted(history.items()):
            if status == "succeeded" and job not in self._finished:
                self.faults.append(f"job {job} succeeded and has not ended")
            if attempts > claims or (is_calm and attempts > begun[job]):
                self.faults.append(f"job {job} began {begun[job]} times, charged are {attempts}")

    def _look_at_limit(self) -> None:
        """A window that contains a step of the server's clock may have one burst more."""
        starts = sorted(run.began for run in self._runs if run.job_type == "limited")
        for at in starts:
            window = [one for one in starts if at <= one < at + PER_S]
            stepped = any(at - PER_S <= one < at + 2 * PER_S for one in self._stepped_at)
            if len(window) > STARTS + BURST * (1 + stepped):
                self.faults.append(f"{len(window)} starts in {PER_S} s from {at:.3f}")
                return
        for told in self._told:
            early = [at for at in starts if told + HEARD_S < at < told + TOLD_S * 0.96]
            if early and not any(told - 5 < at < told + TOLD_S for at in self._troubled_at):
                self.faults.append(f"a start at {early[0]:.3f}, and {told:.3f} is told to wait")

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
