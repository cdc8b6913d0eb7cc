"""What the crash of a worker costs, counted in the ledger, outside of the database.

`killed`: two workers run 1,000 jobs, and one is killed with SIGKILL when a third have begun.
`stopped`: a worker stands still (SIGSTOP) until another has its jobs, then goes on: a late write is
one that ends a job which the other still runs. Several systems play at the same time, since most of
the time is waiting.

Each system notices a dead worker as soon as it can be told to, 10 seconds where it takes any time.
A job is lost if it did not run to its end, though no other has ended either for the time that a
system is given; it ran twice at once if a second run began before the first ended, while the first
one's process lived. The seconds are from the crash until each job had run to its end once, so they
are more for a system that is slow with the jobs that nothing happened to.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from bench.peers.harness import LEASE, SECONDS
from bench.peers.ledger import Entry, LedgerFile
from bench.peers.played import Failed, Played, Worker
from bench.peers.result import Measured
from bench.peers.stage import Stage, count_left, wait_until
from bench.peers.system import Setup, System

NAME = "crash"
ROUNDS_MAX = 1
TOGETHER = 4
SLOTS = 10
"""Jobs at once of each worker."""
WORK_S = 0.05
LONG_S = 8.0
"""A job that is stopped. Another worker must still run it when the first one writes."""
LONG_JOBS = 4
FEWER_S = 3.0
"""A worker that has not begun all of them by then runs fewer at once."""
LEASE_S = 10
START_S = 60
LOOK_EACH_S = 0.1
ENDS_S = 240
"""However slow a system is, its jobs are waited for no longer."""
LOOK_S = 2.0
"""After a stopped worker goes on, its write is looked for so long."""


def entries(system: System) -> list[Setup]:
    return [system.lead]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    more = {SECONDS: str(WORK_S), LEASE: str(LEASE_S)}
    with stage.turn(system, setup, more) as played:
        yield from _kill(played, stage)
    with stage.turn(system, setup, {**more, SECONDS: str(LONG_S)}) as played:
        yield _freeze(played, find_recover_s(stage, system))


def find_recover_s(stage: Stage, system: System) -> float:
    """Return how long a system may take until another worker has the jobs of one that is gone."""
    return max(stage.scale.recover_s, system.recover_s)


def _kill(played: Played, stage: Stage) -> Iterator[Measured]:
    jobs = stage.scale.crash_jobs
    played.run("fill", "work", jobs)
    with ExitStack() as stack:
        first = stack.enter_context(played.worker(SLOTS))
        second = stack.enter_context(played.worker(SLOTS, "b"))
        wait_for_begun(played.ledger, jobs // 3, first)
        pids = {process.pid for process in first.tree()}
        first.kill()
        crashed_at = time.time()
        if played.system.starts_again:
            stack.enter_context(played.worker(SLOTS))
        wait_for_ends(played, jobs, find_recover_s(stage, played.system))
        died = dict.fromkeys(pids, crashed_at)
        note = "the killed worker was started again" if played.system.starts_again else ""
        why = played.system.why_lost
        yield from count("killed", played.ledger, jobs, crashed_at, died, note, why)
        if not second.is_alive:
            raise Failed(f"the other worker ended too: {second.said}")


def _freeze(played: Played, within_s: float) -> Measured:
    """Stop a worker until another has a job of it, let it go on, and see whether its write
    counts."""
    what = "stopped: late writes accepted"
    played.run("fill", "work", LONG_JOBS)
    ledger = played.ledger
    with played.worker(SLOTS) as first:
        wait_for_begun(ledger, 1, first)
        wait_until(lambda: len(_find_begun(ledger)) >= LONG_JOBS, FEWER_S)
        pids = {process.pid for process in first.tree()}
        first.signal(signal.SIGSTOP)
        held = _find_begun(ledger)

        def find_others(kind: str) -> list[Entry]:
            return [
                entry for entry in ledger.entries() if entry.kind == kind and entry.pid not in pids
            ]

        def find_taken() -> set[int]:
            return held & {entry.n for entry in find_others("begin")}

        with played.worker(SLOTS, "b") as _, count_left(played) as left:
            if not wait_until(lambda: bool(find_taken()), within_s):
                first.signal(signal.SIGCONT)
                note = f"no other worker took the jobs within {within_s:g} s"
                note += f": {played.system.why_held}" if played.system.why_held else ""
                return Measured(what=what, value=None, unit="jobs", better="less", note=note)
            time.sleep(0.5)  # others that it takes at the same time
            taken, over, before = find_taken(), len(find_others("end")), left()
            first.signal(signal.SIGCONT)
            wait_until(lambda: _count_ends(ledger, pids) >= len(held), LOOK_S)
            time.sleep(LOOK_S)
            accepted = max(0, before - left() - (len(find_others("end")) - over))
    return Measured(
        what=what,
        value=float(accepted),
        unit="jobs",
        better="less",
        note=f"of {len(taken)} that another worker ran then",
    )


def _count_ends(ledger: LedgerFile, pids: set[int]) -> int:
    return sum(entry.kind == "end" and entry.pid in pids for entry in ledger.entries())


def wait_for_begun(ledger: LedgerFile, jobs: int, worker: Worker) -> None:
    """Wait until so many jobs have begun. Raises Failed."""
    if not wait_until(lambda: len(_find_begun(ledger)) >= jobs, START_S, 0.01):
        raise Failed(f"{jobs} jobs did not begin within {START_S} s: {worker.said}")


def _find_begun(ledger: LedgerFile) -> set[int]:
    return {entry.n for entry in ledger.entries() if entry.kind == "begin"}


def wait_for_ends(
    played: Played, jobs: int, still_s: float, tend: Callable[[], None] = lambda: None
) -> None:
    """Wait until so many jobs have run to their end, or none has for so long; `tend` meanwhile.

    Then wait as long until each is finished in the database too: one whose end was not written runs
    again, and that counts.
    """
    until, ended, ended_at = time.monotonic() + ENDS_S, 0, time.monotonic()
    while ended < jobs and time.monotonic() < min(until, ended_at + still_s):
        tend()
        time.sleep(LOOK_EACH_S)
        now = len({entry.n for entry in played.ledger.entries() if entry.kind == "end"})
        if now > ended:
            ended, ended_at = now, time.monotonic()
    if ended == jobs:
        with count_left(played) as left:
            wait_until(lambda: left() == 0, still_s, LOOK_EACH_S)


@dataclass(slots=True)
class RunOfJob:
    """One run of a job."""

    pid: int
    began: float
    ended: float | None = None


def read_runs(entries: list[Entry]) -> dict[int, list[RunOfJob]]:
    """Return the runs of each job."""
    runs: dict[int, list[RunOfJob]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "begin":
            runs[entry.n].append(RunOfJob(entry.pid, entry.at))
        elif entry.kind == "end":
            mine = [run for run in runs[entry.n] if run.pid == entry.pid and run.ended is None]
            if mine:
                mine[0].ended = entry.at
    return runs


def count_overlaps(runs: dict[int, list[RunOfJob]], died: dict[int, float]) -> int:
    """Return how many jobs ran twice at once; a run ends with its process."""
    twice = 0
    for mine in runs.values():
        ends = [run.ended or died.get(run.pid, float("inf")) for run in mine]
        twice += any(later.began < ends[at] for at in range(len(mine)) for later in mine[at + 1 :])
    return twice


def count(
    what: str,
    ledger: LedgerFile,
    jobs: int,
    crashed_at: float,
    died: dict[int, float],
    note: str = "",
    why: str = "",
) -> Iterator[Measured]:
    """Return what the ledger says of a crash; `why` jobs may be lost is said if some are."""
    runs = read_runs(ledger.entries())
    ends = {n: [run.ended for run in mine if run.ended] for n, mine in runs.items()}
    over = [min(mine) for mine in ends.values() if mine]
    lost = jobs - len(over)
    again = sum(len(mine) > 1 for mine in runs.values())
    said = "; ".join(filter(None, (f"{jobs:,} jobs, {again} ran again", note, why if lost else "")))
    yield Measured(what=f"{what}: not run to their end", value=float(lost), unit="jobs",
                   better="less", note=said)  # fmt: skip
    yield Measured(what=f"{what}: ran twice at once", value=float(count_overlaps(runs, died)),
                   unit="jobs", better="less")  # fmt: skip
    seconds = None if lost else max(0.0, max(over) - crashed_at)
    yield Measured(what=f"{what}: until all had run", value=seconds, unit="s", better="less",
                   note=f"{lost} jobs had not" if lost else "")  # fmt: skip
