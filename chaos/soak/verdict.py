"""What a soak has found: what the ledger says, what grew, and what is beyond its bound."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from chaos.soak.growth import FEWEST, Bound, Line, Point, fit
from chaos.soak.pace import MEASURED_S, SETTLED_DAYS, SETTLES_S
from chaos.soak.run import Soak
from chaos.soak.samples import MIB, Relation, Sample

LOST = (
    "every job has ended",
    "no job is lost: every committed job exists",
    "a job and the rows of its transaction exist together or not at all",
    "what a handler commits with its job's success exists once, and only with the success",
    "a job that a schedule enqueued exists",
)
TWICE = (
    "a claim starts its job at most once",
    "no attempt starts while another claim holds the lease",
    "a job with one attempt starts at most once",
    "no job exists twice, and no key has two jobs",
    "a time of a schedule has one job",
)
WORKER = Bound(per_million=30, wavers=10)
"""MiB of a worker process: 30 bytes a job; a young one still imports and caches."""
BLOCKS = Bound(per_million=50_000, wavers=60_000)
"""Blocks that Python holds in a worker process, after its warm-up about 365,000: of twenty jobs one
may leave one for ever."""
SESSION = Bound(per_million=30, wavers=4)
"""MiB that a session of the server has for itself."""
TABLE = Bound(per_million=50, wavers=4)
"""MiB of a table or an index."""
ROWS = Bound(per_million=20_000, wavers=2_000)
"""Rows of a table: of fifty jobs one may leave a row for ever."""
CONNECTIONS = Bound(per_million=5, wavers=10)
HORIZON_S = 60.0
"""Longest that a snapshot may hold vacuum up."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How a figure went on after the warm-up."""

    what: str
    unit: str
    first: float
    last: float
    most: float
    line: Line | None
    """None: there are too few samples of it to judge it by."""
    bound: Bound

    @property
    def is_within(self) -> bool:
        """Whether it does not grow beyond its bound."""
        return self.line is None or self.bound.allows(self.line)


@dataclass(slots=True)
class Findings:
    """What is in the report."""

    lost: int
    twice: int
    broken: dict[str, int]
    workers: list[Growth]
    blocks: list[Growth]
    sessions: list[Growth]
    sizes: list[Growth]
    rows: list[Growth]
    connections: Growth
    horizon_s: float
    wal_kib_per_job: float
    jobs: int
    figures: dict[str, int]
    complaints: list[str] = field(default_factory=list)


def find(soak: Soak) -> Findings:
    """Return what this soak has found so far."""
    samples = soak.sampler.samples
    judged = [
        sample
        for sample in samples
        if sample.at_s >= soak.asked.pace.warm_up_s and sample.days >= SETTLED_DAYS
    ]
    broken = Counter[str]()
    for round_ in soak.rounds:
        broken.update({b.check.what: len(b.rows) for b in round_.verdict.broken})
    jobs = samples[-1].jobs if samples else 0
    found = Findings(
        lost=sum(broken[what] for what in LOST),
        twice=sum(broken[what] for what in TWICE),
        broken=dict(broken),
        workers=_processes(samples, "workers", "mib", soak.asked.pace.warm_up_s, WORKER),
        blocks=_processes(samples, "workers", "blocks", soak.asked.pace.warm_up_s, BLOCKS),
        sessions=_processes(samples, "backends", "mib", soak.asked.pace.warm_up_s, SESSION),
        sizes=_relations(judged, "MiB", TABLE),
        rows=_relations([sample for sample in judged if not sample.at_rest], "rows", ROWS),
        connections=_grow(
            "connections", "", [(sample.jobs, sample.connections) for sample in judged], CONNECTIONS
        ),
        horizon_s=max((sample.horizon_s for sample in samples), default=0.0),
        wal_kib_per_job=1024 * samples[-1].wal_mib / jobs if jobs else 0.0,
        jobs=jobs,
        figures=_add_up(soak),
    )
    if soak.is_stuck:
        found.complaints.append(
            "jobs did not end when no more were enqueued, so the run was ended; the promises below "
            "may be broken for this reason"
        )
    found.complaints += _complain(found, soak.asked.pace.total_s, is_over=soak.is_over)
    return found


def _complain(found: Findings, total_s: float, *, is_over: bool) -> Iterable[str]:
    for what, rows in found.broken.items():
        yield f"broken: {what}: {rows} rows"
    if is_over and not found.jobs:
        yield "no job has ended: nothing was tried"
    judged = {
        "memory of workers": found.workers,
        "blocks of workers": found.blocks,
        "memory of sessions": found.sessions,
        "size of tables": found.sizes,
        "rows of tables": found.rows,
        "connections": [found.connections],
    }
    for what, growths in judged.items():
        if is_over and total_s >= MEASURED_S and not any(growth.line for growth in growths):
            yield f"{what}: not measured for long enough to be judged"
        for growth in growths if total_s >= SETTLES_S else ():
            if not growth.is_within and growth.line is not None:
                yield (
                    f"{growth.what} grows by {growth.line.per_million:,.1f} {growth.unit} per "
                    f"million jobs, by {growth.line.grew:,.1f} in this run; "
                    f"{growth.bound.per_million:,g} are allowed"
                )
    if found.horizon_s > HORIZON_S:
        yield f"a snapshot was {found.horizon_s:.0f} s old; {HORIZON_S:.0f} are allowed"


def _processes(
    samples: list[Sample], kind: str, figure: str, warm_up_s: float, bound: Bound
) -> list[Growth]:
    """A figure of each process that lived long enough, without its own warm-up."""
    series: dict[tuple[str, int], list[Point]] = defaultdict(list)
    for sample in samples:
        for process in getattr(sample, kind):
            if process.age_s >= warm_up_s and (measured := getattr(process, figure)):
                series[process.name, process.pid].append((sample.jobs, measured))
    return [
        _grow(f"{name}, pid {pid}", "MiB" if figure == "mib" else figure, points, bound)
        for (name, pid), points in series.items()
        if len(points) >= FEWEST
    ]


def _relations(samples: list[Sample], unit: str, bound: Bound) -> list[Growth]:
    series: dict[str, list[Point]] = defaultdict(list)
    for sample in samples:
        for relation in sample.relations:
            if unit == "MiB":
                series[relation.name].append((sample.jobs, relation.bytes / MIB))
            elif relation.rows is not None:
                series[relation.name].append((sample.jobs, relation.rows))
    return sorted(
        (_grow(name, unit, points, bound) for name, points in series.items()),
        key=lambda growth: -growth.last,
    )


def _grow(what: str, unit: str, points: list[Point], bound: Bound) -> Growth:
    figures = [figure for _, figure in points] or [0.0]
    line = fit(points) if len(points) >= FEWEST else None
    return Growth(what, unit, figures[0], figures[-1], max(figures), line, bound)


def _add_up(soak: Soak) -> dict[str, int]:
    """The figures of all rounds: their sums, or of what is called most the most."""
    total = Counter[str]()
    for round_ in soak.rounds:
        for name, text in round_.verdict.figures:
            count = int(text.replace(",", ""))
            total[name] = (
                max(total[name], count) if name.startswith("most ") else (total[name] + count)
            )
    return {name: count for name, count in total.items() if count}


def bloat(relation: Relation) -> float | None:
    """How many times the space that its rows need a table has; None: too small to tell."""
    if relation.needed is None or relation.needed < MIB:
        return None
    return relation.bytes / relation.needed


def median_of(figures: Iterable[float]) -> float:
    """Return the median; 0: there are none."""
    return median([*figures] or [0.0])
