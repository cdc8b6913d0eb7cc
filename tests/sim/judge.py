"""Judges a world from outside: by the ledgers of its handlers, and by what is left at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from tests.sim.kinds import KINDS, group_of, key_of

if TYPE_CHECKING:
    from tests.sim.server import Server

LEASE_S = 30.0
CAPACITY = {"lane": 2, "row": 1, "halt": 1, "many": 3, "capped": 3}
"""How many jobs of a type, or of its group, may run at once."""
CHARGED = ("finished", "failed")
ONE_ATTEMPT = ("halt", "once")
"""Types whose jobs begin once."""
WAITS = {"parent": 2}
"""How often a job of a type waits for others."""
EXPIRES_S = 2.0
"""Until a job of the type `late` may not begin any more."""
STARTS, PER_S, BURST = 4, 10.0, 2
"""Of the rate limit."""
FREED_S = 3.0
"""Until a job that begins or ends has given up its key."""
CAPPED_S = 60.0
"""How long jobs may wait after a person has limited a queue: for less than half a minute, and until
those that waited have their turn."""
PAY_KEYS = 30
"""How many different payments there are."""
TOLD_S, HEARD_S = 10.0, 2.0
"""How long a handler of that limit is told to wait now and then, and until all workers know."""
FAILURES, OPEN_S = 3, 20.0
"""Of the breaker."""
PROMPT = {"plain", "urgent", "flaky", "keyed", "pays", "parent", "once"}
ASKS_NOTHING = PROMPT | {"shaped"}
"""Types whose jobs begin when they are claimed."""
PROMPT_S = 3.0
"""How soon a job of these types begins that is due, if nothing was ever wrong and none of the
workers was full: three polls, if nobody told of it."""
SLOTS = 6
"""Of a worker."""
RESTS_MAX, LOOKS_MAX = 0.5, 2.2
"""Most statements a second when nothing is left to do: of each worker, and of the one of each
release that looks for the others."""
CLAIMS_A_RUN, CLAIMS_A_SECOND = 3.0, 2.5
"""How many claims a handler that begins costs at most, and a second of a worker's life."""
NEW_S = 5.0
"""Until a worker has asked what the server's clock says."""
WRITTEN_S = 5.0
"""Until an outcome is written."""
AWARE_S, RENEWED_S = 2.0, 15.0
"""Until a worker that was frozen knows which leases it has lost: by its clock, or, where that stood
still as well, from its next renewal."""
SILENCE_S = 120.0
"""How long nothing may begin or end, once the world is well: a lease, the longest job, and what
else a job waits for."""
LOST_S = 50.0
"""How long the leases of a dead worker may last: a lease, half of one after an outage or a step of
the clock, and five seconds."""
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
  where state = 'trial'
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
    n: int
    began: float = 0.0
    ended: float | None = None
    end: str = ""
    """How: finished, failed or waits; nothing: it was stopped, or lost."""
    told: int | None = None
    """What it reported last."""
    is_taken: bool = False
    """Whether a person took the job away meanwhile."""

    @property
    def group(self) -> str | None:
        return group_of(self.job_type, self.n)


@dataclass
class Made:
    """A job that a producer knows of."""

    kind: str
    n: int
    due: float
    is_delayed: bool
    known: float = inf  # since when its producer knows that it is committed


class Judge:
    """The model."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.enqueued: set[int] = set()
        self.faults: list[str] = []
        self._runs: list[Run] = []
        self._running: defaultdict[int, list[Run]] = defaultdict(list)
        self._claims: dict[int, int] = {}
        self._begun: Counter[int] = Counter()
        self._finished: dict[int, float] = {}
        """Jobs of which a run has ended without an error, and when the first did."""
        self._replaced: dict[int, tuple[float, int]] = {}
        """The jobs whose payload was replaced, when that was asked for last, and what was given."""
        self._joined_by: Counter[int] = Counter()
        self._made: dict[int, Made] = {}
        self._halted: dict[str | None, int] = {}
        """The dead job that stands in the way of its group."""
        self._due: dict[int, float] = {}
        """When each job was there and due that has not begun."""
        self._full_at = 0.0
        """When so many jobs ran last that one worker may have had no slot."""
        self._told: list[float] = []
        self._lost: list[tuple[int, int]] = []
        """The claims that workers say they have lost."""
        self._unread: set[tuple[int, str]] = set()
        self._batches: dict[int, list[int]] = {}
        self._children: defaultdict[int, set[int]] = defaultdict(set)
        """The jobs that one has waited for."""
        self._paid: Counter[int] = Counter()
        self._unpaid: set[int] = set()
        self._kept_steps: set[tuple[int, str]] = set()
        # What goes wrong, or is done by persons.
        self._excused: list[tuple[str, float, float]] = []
        """Whose runs do not count, since when and until when; '': those of all."""
        self._unaware: dict[str, float] = {}
        self._dead: set[str] = set()
        self._cap: tuple[int, float] | None = None
        """Of the queue, and since when."""
        self._touched: set[int] = set()
        self._cancelled: set[int] = set()
        self._limits = [(0.0, STARTS)]
        """How many starts the rate limit has, and since when."""
        self._stepped_at: list[float] = []
        self._started_at = 0.0
        self._troubled_at: list[float] = []
        self._down: list[tuple[float, float]] = []
        self._well_at = 0.0

    # What it is told of the world

    def note_enqueued(self, job: int, made: Made) -> None:
        """A job is there, and due then."""
        self.enqueued.add(job)
        made.known = self._now()
        self._made[job] = made
        if job not in self._claims:
            self._due[job] = max(made.due, self._now())
        key = key_of(made.kind, made.n)
        if key is None or made.kind == "pending":
            return
        for other, before in self._made.items():
            if other < job and (before.kind, key_of(before.kind, before.n)) == (made.kind, key):
                is_free = other in self._touched or (made.kind == "live" and self._is_over(other))
                if not is_free:
                    self.faults.append(f"job {job} is made, and {other} has its key {key}")

    def note_met(self, holder: int, made: Made, asked: float, *, is_replaced: bool) -> None:
        """No job is made, because this one has the key; what was given stands in it now, or not."""
        if is_replaced:
            self._replaced[holder] = asked, made.n
        if self._troubled_at or holder in self._touched:
            return
        finished = self._finished.get(holder, asked)
        began = min((run.began for run in self._running[holder]), default=asked)
        if made.kind == "live" and asked > finished + FREED_S:
            self.faults.append(f"job {holder} has ended and keeps its key, at {asked:.3f}")
        if made.kind == "pending" and asked > min(began, finished) + FREED_S:
            self.faults.append(f"job {holder} has begun and keeps its key, at {asked:.3f}")

    def note_joined_by(self, job: int, by: int) -> None:
        """So many more transactions that are open count on it, and it waits for their end."""
        self._joined_by[job] += by

    def list_waiting(self) -> list[int]:
        """The jobs that have not begun."""
        return sorted(self._due)

    def note_batch(self, number: int, members: dict[int, Made]) -> None:
        for job, made in members.items():
            self.note_enqueued(job, made)
        self._batches[number] = list(members)

    def note_touched(self, job: int) -> None:
        """A person takes a job from where it is; its worker, if it has one, does not know yet."""
        self._touched.add(job)
        self._halted = {group: dead for group, dead in self._halted.items() if dead != job}
        for run in self._running[job]:
            run.is_taken = True

    def note_cancelled(self, job: int) -> None:
        """A person has cancelled it, and was told so."""
        self._cancelled.add(job)

    def note_retried(self, job: int) -> None:
        self.note_touched(job)
        self._cancelled.discard(job)

    def note_deleted(self, job: int) -> None:
        self.note_touched(job)
        self.enqueued.discard(job)

    def note_limit(self, starts: int) -> None:
        """A person has lowered the limit, or raises it."""
        self._limits.append((self._now(), starts))

    def note_cap(self, limit: int | None) -> None:
        """So many jobs of the queue may run at once."""
        self._cap = None if limit is None else (limit, self._now() + 3)
        self.note_pause(self._now() + CAPPED_S)

    def note_trouble(self) -> None:
        """Something went wrong: what a worker has found out may not have been written."""
        self._troubled_at.append(self._now())

    def note_death(self, worker: str) -> None:
        self.note_trouble()
        self._excuse(worker, self._now())
        self._dead.add(worker)
        for runs in self._running.values():
            runs[:] = [run for run in runs if run.worker != worker]

    def note_freeze(self, worker: str, until: float, *, knows: bool) -> None:
        """Until it has noticed, its handlers may run beside those of others. It knows how long that
        was, unless its clock stood still as well."""
        self.note_trouble()
        aware_at = until + (AWARE_S if knows else RENEWED_S)
        if not knows:
            self._unaware[worker] = aware_at
        self._excuse(worker, aware_at)

    def note_outage(self, until: float) -> None:
        self.note_trouble()
        self._excuse("", until + 10)

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
            self._excuse("", now + 60)

    def _excuse(self, worker: str, until: float) -> None:
        self._excused.append((worker, self._now() - WRITTEN_S, until))

    def _is_excused(self, worker: str, since: float, until: float) -> bool:
        """Whether something was wrong with a worker, or with all, in that time."""
        return any(
            who in ("", worker) and began < until and since <= ended
            for who, began, ended in self._excused
        )

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
        before = self._claims.get(run.job, 0)
        # A worker whose clock stood still as long as it did cannot know yet what it has lost.
        run.is_taken = run.claim <= before and run.began <= self._unaware.get(run.worker, -1.0)
        if not run.is_taken:
            self._look_at_a_beginning(run, before)
        self._claims[run.job] = max(run.claim, before)
        self._begun[run.job] += 1
        self._running[run.job].append(run)
        self._runs.append(run)
        self._note_full()
        self._look_at_places(run)
        if run.job_type == "after":
            self._look_at_members(run)

    def _look_at_members(self, run: Run) -> None:
        """Say so if what follows a batch begins before its members have ended."""
        members = self._batches.get(run.n, [])
        left = [other.job for other in self._list_running(members)]
        if not self._troubled_at:  # else some may be dead that began less often
            left += [job for job in members if not self._is_over(job)]
        if left:
            self.faults.append(f"batch {run.n} is followed before {left} have ended")

    def _look_at_a_beginning(self, run: Run, before: int) -> None:
        """Say so if it should not begin, or not now."""
        if run.job in self._cancelled:
            self.faults.append(f"job {run.job} begins, and is cancelled, at {run.began:.3f}")
        if run.worker in self._dead:
            self.faults.append(f"job {run.job} begins on {run.worker}, which is dead")
        for other in self._list_running([run.job]):
            self.faults.append(
                f"job {run.job} runs twice at {run.began:.3f}: claim {other.claim} on "
                f"{other.worker} since {other.began:.3f}, claim {run.claim} on {run.worker}"
            )
        if run.claim <= before:
            self.faults.append(f"job {run.job} begins claim {run.claim} after claim {before}")
        self._look_at_order(run)
        self._look_at_time(run)
        self._look_at_wait(run)

    def end(self, run: Run) -> None:
        run.ended = self._now()
        self._note_full()
        if run.end == "finished":
            self._finished.setdefault(run.job, run.ended)
            self._look_at_a_late_end(run)
        if run.end == "failed" and run.job_type == "halt" and run.job not in self._touched:
            self._halted[run.group] = run.job
        if run in self._running[run.job]:
            self._running[run.job].remove(run)

    def _look_at_a_late_end(self, run: Run) -> None:
        """Say so if it went on although another worker has got its job."""
        now, claim = self._now(), self._claims[run.job]
        is_excused = run.is_taken or self._is_excused(run.worker, now, now)
        if claim > run.claim and not is_excused:
            self.faults.append(f"job {run.job} goes on as claim {run.claim} after claim {claim}")

    def look_at_a_call(self, runs: list[Run]) -> None:
        """One call was given these jobs."""
        if len({run.group for run in runs}) > 1:
            self.faults.append(f"a call has jobs of several groups: {[run.job for run in runs]}")

    def note_told_to_wait(self) -> None:
        """It is told that nothing more is wanted for TOLD_S."""
        self._told.append(self._now())

    def note_paid(self, run: Run) -> None:
        """It did what must not happen twice for its key."""
        if run.worker in self._dead:
            return
        key = run.n % PAY_KEYS
        self._paid[key] += 1
        if self._paid[key] > 1:
            self.faults.append(f"job {run.job} pays {key} twice, by claim {run.claim}")

    def note_unpaid(self, run: Run) -> None:
        """It was stopped before it paid: whether it did is unknown."""
        self._unpaid.add(run.n % PAY_KEYS)

    def look_at_a_payment(self, run: Run) -> None:
        """It goes on as if it had been paid."""
        key = run.n % PAY_KEYS
        if not (self._paid[key] or key in self._unpaid or self._troubled_at):
            self.faults.append(f"job {run.job} goes on, and {key} is not paid")

    def note_step(self, run: Run, name: str) -> None:
        """It calls the function of its step."""
        if (run.job, name) in self._kept_steps:
            self.faults.append(f"job {run.job} repeats a step that was kept, on {run.worker}")

    def note_step_kept(self, run: Run, name: str) -> None:
        self._kept_steps.add((run.job, name))

    def note_joined(self, run: Run, outcomes: dict[int, str | None]) -> None:
        """It has waited for these jobs, and goes on."""
        self._children[run.job].update(outcomes)
        for other in self._list_running(outcomes):
            self.faults.append(f"job {run.job} goes on while {other.job} runs")
        for job, outcome in outcomes.items():
            if outcome == "succeeded" and not {job} & (self._finished.keys() | self._touched):
                self.faults.append(f"job {run.job} has a result of {job}, which has not ended")

    # What workers say

    def note_lost(self, job: int, claim: int) -> None:
        """A worker has discarded an outcome, because another claim has the job."""
        self._lost.append((job, claim))

    def note_unread(self, job: int, release: str) -> None:
        """A release could not read what a job is given: it is not to get the job again."""
        if (job, release) in self._unread and job not in self._touched and not self._stepped_at:
            self.faults.append(f"job {job} comes again to release {release}, which cannot read it")
        self._unread.add((job, release))

    def look_at_rest(self, per_s: float, workers: int, releases: int) -> None:
        """Nothing is left to do, and these workers make so many statements a second."""
        if per_s > workers * RESTS_MAX + releases * LOOKS_MAX:
            self.faults.append(f"{workers} idle workers make {per_s:.1f} statements a second")

    def look_at_claims(self, claims: int, worker_s: float) -> None:
        """Workers that lived so long in all have made so many claims."""
        most = len(self._runs) * CLAIMS_A_RUN + worker_s * CLAIMS_A_SECOND
        if claims > most:
            self.faults.append(f"{claims} claims, at most {most:.0f} are wanted")

    def look_at_a_stop(self, worker: str, unwritten: Iterable[int], server: Server) -> None:
        """A worker has stopped: it names the jobs whose outcomes it could not write, and gives back
        all others."""
        asked = "select id, claims from rota.job where status = 'running' and locked_by = %s"
        held = dict(server.query(asked, worker))
        for job in sorted(held.keys() - set(unwritten)):
            runs = [run for run in self._runs if (run.job, run.claim) == (job, held[job])]
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
        if due is None or run.job_type not in PROMPT:
            return
        if self._troubled_at or self._cap or run.job in self._touched:
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
            if not (run.is_taken or self._is_excused(run.worker, now, now))
        ]

    def _look_at_places(self, run: Run) -> None:
        """Say so if more run at a time than there are places."""
        running = self._list_running(list(self._running))
        if run.job_type in CAPACITY:
            whose = run.group or run.job_type
            together = [other for other in running if (other.group or other.job_type) == whose]
            if len(together) > CAPACITY[run.job_type]:
                self.faults.append(f"{len(together)} jobs of {whose} run at {self._now():.3f}")
        if self._cap is not None:
            limit, since = self._cap
            together = [other for other in running if other.began > since]
            if len(together) > limit:
                self.faults.append(f"{len(together)} jobs of a queue run at {self._now():.3f}")

    def _look_at_order(self, run: Run) -> None:
        """Say so if a job begins before one that was in its row before it, or that halts it."""
        halting = self._halted.pop(run.group, None)
        if halting not in (None, run.job):
            self.faults.append(f"job {run.job} begins in a group that {halting} halts")
        made = self._made.get(run.job)
        if run.job_type != "row" or made is None or made.is_delayed or self._stepped_at:
            return
        first = min(other.began for other in [*self._runs, run] if other.job == run.job)
        passed = [
            job
            for job, earlier in self._made.items()
            if job < run.job
            and earlier.known < first  # else it may have been committed later, and stands behind
            and not earlier.is_delayed
            and (earlier.kind, group_of(earlier.kind, earlier.n)) == ("row", run.group)
            and not self._is_over(job)
        ]
        if passed and not self._touched.issuperset(passed):
            self.faults.append(f"job {run.job} of {run.group} begins before {passed}")

    def _is_over(self, job: int) -> bool:
        """Whether it may be over, and need not."""
        most = KINDS[self._made[job].kind].get("max_attempts", 10)
        return job in self._finished or job in self._touched or self._begun[job] >= most

    def _look_at_time(self, run: Run) -> None:
        """Say so if it begins too early, too late, or once too often."""
        made, now = self._made.get(run.job), self._now()
        if self._joined_by[run.job]:
            self.faults.append(
                f"job {run.job} begins, and a transaction counts on it, at {now:.3f}"
            )
        if made is None or run.job in self._touched or self._stepped_at:
            return
        if run.job in self._claims:
            if run.job_type in ONE_ATTEMPT:
                self.faults.append(f"job {run.job} {run.job_type} begins twice")
        elif run.job_type != "pending" and made.is_delayed and now < made.due - 0.01:
            self.faults.append(f"job {run.job} begins {made.due - now:.2f} s early at {now:.3f}")
        elif run.job_type == "late" and not self._troubled_at and now > made.due + EXPIRES_S + 0.5:
            self.faults.append(f"job {run.job} begins after it has expired, at {now:.3f}")

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
            "where idempotency_key is not null and status = 'succeeded' and job_type = 'keyed' "
            "group by 1, 2"
        )
        self.faults += [f"key {key} of {name} has {n} jobs" for name, key, n in keys if n > 1]

    def _look_at_jobs(self, server: Server) -> None:
        """Each job is over once, and one that has attempts left does not die."""
        history = defaultdict(list)
        for job, *row in server.query("select id, status, attempts, claims from rota.job_history"):
            history[job].append(row)
        dead = "select id, job_type, attempts, claims from rota.job where status = 'dead'"
        for job, name, attempts, claims in server.query(dead):
            history[job] = history[job] or [["dead", attempts, claims]]
            if name not in (*ONE_ATTEMPT, "pays") and attempts < KINDS[name].get(
                "max_attempts", 10
            ):
                self.faults.append(f"job {job} {name} is dead after {attempts} attempts")
        for job in sorted(self.enqueued):
            if (times := len(history.get(job, []))) != 1:
                self.faults.append(f"job {job} is {times} times in history")
        for job, claim in self._lost:
            if [attempt[::2] for attempt in history.get(job, ())] == [["succeeded", claim]]:
                self.faults.append(f"job {job} succeeded by claim {claim}, said to be lost")
        self._look_at_progress(server)
        self._look_at_attempts(history)
        self._look_at_writes(server, history)

    def _look_at_progress(self, server: Server) -> None:
        """What a handler reported last stands in its job."""
        said = {(run.job, run.claim): run.told for run in self._runs}
        kept = "select id, claims, progress -> 'done' from rota.job_history"
        for job, claim, done in server.query(kept):
            if (last := said.get((job, claim))) not in (None, done):
                self.faults.append(f"job {job} has said {last}, and its progress is {done}")

    def _look_at_attempts(self, history: dict[int, list[Any]]) -> None:
        """An attempt is charged that began and failed, or was lost."""
        runs: defaultdict[int, list[Run]] = defaultdict(list)
        for run in self._runs:
            runs[run.job].append(run)
        for job, [(status, attempts, claims), *_] in sorted(history.items()):
            ended = [run.end for run in runs[job]]
            # Each claim became one more when it ended, but one that ended with success.
            is_told = claims == 2 * len(ended) - (status == "succeeded")
            is_calm = job not in self._touched and self._is_calm(runs[job], is_told=is_told)
            if status == "succeeded" and job not in self._finished and not self._writes(job):
                self.faults.append(f"job {job} succeeded and has not ended")
            if is_calm and status != "succeeded" and job in self._finished:
                self.faults.append(f"job {job} has ended well and is {status}")
            charged = sum(run.end in CHARGED or run.job_type in ONE_ATTEMPT for run in runs[job])
            if attempts > claims or (is_calm and attempts != charged):
                self.faults.append(f"job {job} ended {ended}, charged are {attempts}")
            if job in self._made and is_calm:
                self._look_at_a_way(job, ended, claims)

    def _is_calm(self, runs: list[Run], *, is_told: bool) -> bool:
        """Whether nothing was wrong with a job of which these are all runs."""
        were = ((run.worker, run.began, (run.ended or inf) + WRITTEN_S) for run in runs)
        had_trouble = self._stepped_at or any(self._is_excused(*span) for span in were)
        return not self._troubled_at or (is_told and not had_trouble)

    def _look_at_a_way(self, job: int, ended: list[str], claims: int) -> None:
        """Say so if a job that nothing disturbed began too often, or was claimed for nothing."""
        kind = self._made[job].kind
        asked, n = self._replaced.get(job, (0.0, 0))
        if any(run.job == job and run.began < asked and run.n != n for run in self._runs):
            self.faults.append(f"job {job} began before {asked:.3f}, and got what was replaced")
        # A child that a person retries is waited for again.
        is_again = not self._touched.isdisjoint(self._children[job])
        if ended.count("waits") > WAITS.get(kind, 1000) and not is_again:
            self.faults.append(f"job {job} waits {ended.count('waits')} times")
        if ended.count("failed") > KINDS[kind].get("max_attempts", 10):
            self.faults.append(f"job {job} failed {ended.count('failed')} times")
        # Each exit is counted as a claim is; a few are handed back before they begin.
        if kind in ASKS_NOTHING and claims > 2 * self._begun[job] + 6:
            self.faults.append(f"job {job} began {self._begun[job]} times in {claims} claims")

    def _writes(self, job: int) -> bool:
        """Whether its end is committed by its handler, which may not come back from there."""
        return job in self._made and self._made[job].kind == "writes"

    def _look_at_writes(self, server: Server, history: dict[int, list[Any]]) -> None:
        """What a handler wrote together with the end of its job is there once."""
        rows = dict(server.query("select job, count(*) from sim.ledger group by job"))
        for job, [(status, *_), *_] in history.items():
            if self._writes(job) and rows.get(job, 0) != (status == "succeeded"):
                self.faults.append(f"job {job} is {status}, and wrote {rows.get(job, 0)} times")

    def _look_at_limit(self) -> None:
        """A window that contains a step of the server's clock may have one burst more. Of a limit
        that a person changes the more generous setting counts until all workers know."""
        starts = sorted(run.began for run in self._runs if run.job_type == "limited")
        ends = [since + HEARD_S for since, _ in self._limits[1:]]
        limits = [*zip(self._limits, [*ends, inf], strict=True)]
        for at in starts:
            window = [start for start in starts if at <= start < at + PER_S]
            most = max(n for (since, n), end in limits if since < at + PER_S and at < end)
            stepped = any(at - PER_S <= step < at + 2 * PER_S for step in self._stepped_at)
            if len(window) > most + BURST * (1 + stepped):
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
                run.ended or up for run in calls if run.end == "failed" and run.began >= down
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
