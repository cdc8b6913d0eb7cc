"""Judges a world from outside: by the ledgers of its handlers, and by what is left at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.server import Server


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
    is_taken: bool = False


class Judge:
    """The model."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.enqueued: set[int] = set()
        self.runs: list[Run] = []
        self.running: dict[int, list[Run]] = defaultdict(list)
        self.faults: list[str] = []
        self._excused: dict[str, float] = {}
        self._dead: set[str] = set()
        self._all_excused_until = -1.0
        self._claims: dict[int, int] = {}
        self._batches: dict[int, list[int]] = {}
        self._paid: Counter[int] = Counter()
        self._stepped_at: list[float] = []

    def note_enqueued(self, job: int) -> None:
        self.enqueued.add(job)

    def note_taken(self, job: int) -> None:
        """A person takes a running job from its worker, which does not know it yet."""
        for run in self.running[job]:
            run.is_taken = True

    def note_death(self, worker: str) -> None:
        self._dead.add(worker)
        for runs in self.running.values():
            runs[:] = [run for run in runs if run.worker != worker]

    def note_freeze(self, worker: str, until: float) -> None:
        """Until it has noticed, its handlers may run beside those of others."""
        self._excused[worker] = max(self._excused.get(worker, 0.0), until + 15)

    def note_outage(self, until: float) -> None:
        self._all_excused_until = max(self._all_excused_until, until + 60)

    def note_step(self) -> None:
        """A step of the server's clock: each window that contains it may have one burst more."""
        self._stepped_at.append(self._now())

    def note_batch(self, number: int, members: list[int]) -> None:
        self._batches[number] = members

    def note_paid(self, run: Run) -> None:
        """What must not happen twice."""
        if run.worker in self._dead:
            return
        self._paid[run.job] += 1
        if self._paid[run.job] > 1:
            self.faults.append(f"job {run.job} pays twice, by claim {run.claim} on {run.worker}")

    def begin(self, run: Run) -> None:
        run.began = self._now()
        if run.worker in self._dead:
            self.faults.append(f"job {run.job} begins on {run.worker}, which is dead")
        others = self.running[run.job]
        for other in others:
            if not self._is_excused(other):
                self.faults.append(
                    f"job {run.job} runs twice at {run.began:.3f}: claim {other.claim} on "
                    f"{other.worker} since {other.began:.3f}, claim {run.claim} on {run.worker}"
                )
        before = self._claims.get(run.job, 0)
        if run.claim <= before:
            self.faults.append(f"job {run.job} begins claim {run.claim} after claim {before}")
        self._claims[run.job] = run.claim
        others.append(run)
        self.runs.append(run)
        self._look_at_groups(run)
        if run.job_type == "after":
            self._look_at_batch(run)

    def end(self, run: Run) -> None:
        run.ended = self._now()
        if run in self.running[run.job]:
            self.running[run.job].remove(run)

    def _is_excused(self, run: Run) -> bool:
        now = self._now()
        return (
            run.is_taken
            or now <= self._excused.get(run.worker, -1.0)
            or now <= self._all_excused_until
        )

    def _look_at_groups(self, run: Run) -> None:
        if run.group is None:
            return
        together = [
            one
            for runs in self.running.values()
            for one in runs
            if one.group == run.group and one.job_type == run.job_type and not self._is_excused(one)
        ]
        if len(together) > 2:
            self.faults.append(
                f"{len(together)} jobs of group {run.group} run at {self._now():.3f}"
            )

    def _look_at_batch(self, run: Run) -> None:
        members = self._batches.get(run.n, ())
        early = [
            job for job in members if any(not self._is_excused(one) for one in self.running[job])
        ]
        if early:
            self.faults.append(f"batch {run.n} is followed while {early} run")

    def _look_at_limit(self) -> None:
        starts = sorted(run.began for run in self.runs if run.job_type == "limited")
        for at in starts:
            window = [one for one in starts if at <= one < at + 10]
            stepped = any(at - 10 <= one < at + 20 for one in self._stepped_at)
            if len(window) > 20 + 5 * (1 + stepped):
                self.faults.append(f"{len(window)} starts of limit r in 10 s from {at:.3f}")
                return

    def look_at_the_end(self, server: Server) -> None:
        """Judge what is left when faults have stopped and time has passed."""
        left = server.query(
            "select id, status, coalesce(locked_by, '') from rota.job "
            "where status not in ('dead', 'cancelled') order by id"
        )
        self.faults += [f"job {id_} is still {status} {by}" for id_, status, by in left]
        kept = {id_ for (id_,) in server.query("select id from rota.job")}
        history = Counter(id_ for (id_,) in server.query("select id from rota.job_history"))
        for job in sorted(self.enqueued):
            if job not in kept and history[job] != 1:
                self.faults.append(f"job {job} is {history[job]} times in history")
        done = {
            id_
            for (id_,) in server.query("select id from rota.job_history where status = 'succeeded'")
        }
        self._look_at_limit()
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
            "select payload ->> 'n', idempotency_key, count(*) from rota.job_history "
            "where idempotency_key is not null and status = 'succeeded' group by 1, 2"
        )
        by_key = Counter(key for _, key, _ in keys)
        self.faults += [f"key {key} has {n} jobs" for key, n in sorted(by_key.items()) if n > 1]
        ran = {run.job for run in self.runs if run.ended is not None}
        self.faults += [f"job {job} succeeded and never ran" for job in sorted(done - ran)]
