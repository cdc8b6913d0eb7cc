"""Draws the pictures of the documentation into docs/pictures/: `make pictures`.

    python scripts/drawings.py [--check]

One function is one picture, and its name is that of the file. `--check` only lists those that are
out of date.
"""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.place import describe  # noqa: E402
from rota.model.job import Status  # noqa: E402
from rota.model.retry import (  # noqa: E402
    DEFAULT_MAX_ATTEMPTS,
    Delays,
    Exponential,
    Fixed,
    Linear,
    Quadratic,
    RetryPolicy,
)
from rota.model.states import TRANSITIONS  # noqa: E402
from rota.model.units import words  # noqa: E402
from scripts.screens import COMMANDS  # noqa: E402
from scripts.svg import MONO, ROW, TERMINAL_LEFT, Box, Kind, Picture, measure  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"


def parts() -> Picture:
    """The parts to run: Rota's, and Celery's."""
    picture = Picture(
        "Three parts with Rota, six with Celery",
        "With Rota the application inserts jobs into PostgreSQL, where its data are, and workers "
        "claim them there; workers also start what is scheduled. With Celery there are six parts: "
        "the application, its database, a broker, workers, the process beat for schedules, and a "
        "store for results.",
        height=478,
    )
    picture.label(16, 26, "With Rota", size=16, bold=True)
    app = picture.box(16, 46, 128, 82, "Application", "yours")
    store = picture.box(192, 46, 136, 82, "PostgreSQL", "store", small="your data\nand the jobs")
    workers = picture.box(376, 46, 128, 82, "Workers", "work", small="jobs and\nschedules")
    picture.arrow(app.at(1, 0.5), store.at(0, 0.5))
    picture.arrow(store.at(1, 0.5), workers.at(0, 0.5), both=True)
    picture.line([(16, 154), (504, 154)], "edge")

    picture.label(16, 180, "With Celery", size=16, bold=True)
    beat = picture.box(192, 178, 136, 62, "beat", "wait", small="schedules")
    results = picture.box(376, 178, 128, 62, "Result store", "wait", small="Redis, …")
    app = picture.box(16, 286, 128, 62, "Application", "yours")
    broker = picture.box(192, 286, 136, 62, "Broker", "wait", small="Redis, …")
    workers = picture.box(376, 286, 128, 62, "Workers", "work", small="jobs")
    store = picture.box(192, 394, 136, 62, "PostgreSQL", "store", small="your data")
    picture.arrow(app.at(1, 0.5), broker.at(0, 0.5))
    picture.arrow(broker.at(1, 0.5), workers.at(0, 0.5))
    picture.arrow(beat.at(0.5, 1), broker.at(0.5, 0))
    picture.arrow(workers.at(0.5, 0), results.at(0.5, 1))
    picture.arrow(app.at(0.5, 1), (app.at(0.5, 1)[0], 425), store.at(0, 0.5), both=True)
    picture.arrow(workers.at(0.5, 1), (workers.at(0.5, 1)[0], 425), store.at(1, 0.5), both=True)
    return picture


def commit() -> Picture:
    """A job that commits with the data, and one that is sent to a broker."""
    picture = Picture(
        "A job that commits with your data, and a job that is sent to a broker",
        "With Rota, the user and the job are two rows of one transaction: a crash leaves neither "
        "or both. With a broker there are two systems. If the job is sent before the commit, a "
        "crash between them leaves a job without its user. If it is sent after the commit, a "
        "crash between them leaves a user without the job. If a send is repeated because no "
        "response came, the job may be there twice.",
        height=536,
    )

    def row(y: float, title: str) -> None:
        picture.label(16, y, title, size=16, bold=True)

    row(26, "With Rota: one transaction")
    picture.box(16, 44, 488, 66, kind="good", dashed=True)
    user = picture.box(30, 56, 130, 42, "INSERT user", "yours")
    job = picture.box(184, 56, 130, 42, "INSERT job", "store")
    end = picture.box(362, 56, 130, 42, "COMMIT", "good")
    picture.arrow(user.at(1, 0.5), job.at(0, 0.5))
    picture.arrow(job.at(1, 0.5), end.at(0, 0.5))
    picture.label(16, 128, "A crash before the commit: neither is there.", "good")
    picture.label(16, 148, "After it: both are there.", "good")
    picture.line([(16, 174), (504, 174)], "edge")

    for y, title, left, right, outcome in (
        (200, "With a broker: first the job", "send job", "COMMIT user",
         "A crash or a rollback in between: a job without its user."),
        (316, "With a broker: first the data", "COMMIT user", "send job",
         "A crash in between: the job is lost."),
        (432, "With a broker: sent again", "send job", "send job",
         "No response, but the job had arrived: it is doubled."),
    ):  # fmt: skip
        row(y, title)
        kind = {"send job": "wait", "COMMIT user": "yours"}
        first = picture.box(30, y + 18, 150, 42, left, kind[left])  # type: ignore[arg-type]
        then = picture.box(342, y + 18, 150, 42, right, kind[right])  # type: ignore[arg-type]
        picture.arrow(first.at(1, 0.5), then.at(0, 0.5), dashed=True)
        picture.cross((first.x + first.width + then.x) / 2, first.at(1, 0.5)[1])
        picture.label(16, y + 78, outcome, "bad")
    return picture


LIVE = (Status.QUEUED, Status.FAILED, Status.WAITING, Status.RUNNING)
STOPPED = LIVE[:3]
MOVES: dict[tuple[tuple[Status | None, ...], Status], str] = {
    ((None,), Status.QUEUED): "enqueue",
    ((Status.QUEUED, Status.FAILED), Status.RUNNING): "claim",
    ((Status.QUEUED, Status.FAILED), Status.WAITING): "park",
    ((Status.WAITING,), Status.QUEUED): "release,\nreschedule",
    ((Status.FAILED,), Status.QUEUED): "retry",
    ((Status.RUNNING,), Status.QUEUED): "snooze, hand_back,\ninterrupt, retry,\nrecover_uncharged",
    ((Status.RUNNING,), Status.WAITING): "wait",
    ((Status.RUNNING,), Status.FAILED): "fail,\nrecover",
    ((Status.RUNNING,), Status.SUCCEEDED): "succeed",
    ((Status.RUNNING,), Status.DEAD): "give_up,\nrecover_finally",
    (LIVE, Status.DEAD): "discard",
    (STOPPED, Status.DEAD): "expire",
    (LIVE, Status.CANCELLED): "cancel,\ndrop",
}
"""The arrows between statuses: from which, to which, by which moves."""


def list_drawn() -> Iterator[tuple[Status | None, str, Status]]:
    """Yield each move that an arrow of the picture shows."""
    for (sources, after), verbs in MOVES.items():
        for before in sources:
            yield from ((before, verb.strip(), after) for verb in verbs.split(","))


def states() -> Picture:
    """The statuses of a job, and every move that changes it."""
    there = {(a, verb, b) for (a, verb), b in TRANSITIONS.items() if a is not b}
    if wrong := there ^ {*list_drawn()}:
        raise ValueError(f"MOVES and TRANSITIONS differ: {sorted(map(str, wrong))}")
    picture = Picture(
        "The seven statuses of a job, and the moves between them",
        "Enqueue makes a job queued. A worker claims a job that is queued or failed: it is "
        "running, and then succeeded, failed or dead. A job that must wait for others is waiting. "
        "A job that is not over can be cancelled or discarded, and expire unless it runs. "
        "The table of this page has every move.",
        height=470,
    )
    picture.box(12, 34, 496, 274, dashed=True)
    picture.box(26, 52, 468, 76, dashed=True)

    def node(x: float, y: float, status: Status, kind: Kind, table: str = "") -> Box:
        return picture.box(x, y, 124, 48, status, kind, small=table)

    queued = node(40, 66, Status.QUEUED, "yours")
    failed = node(356, 66, Status.FAILED, "wait")
    waiting = node(26, 244, Status.WAITING, "wait")
    running = node(338, 244, Status.RUNNING, "work")
    cancelled = node(26, 404, Status.CANCELLED, "plain", "job_history")
    dead = node(204, 404, Status.DEAD, "bad", "stays in job")
    succeeded = node(376, 404, Status.SUCCEEDED, "good", "job_history")

    def say(sources: tuple[Status | None, ...], after: Status) -> str:
        return MOVES[sources, after]

    picture.arrow((102, 8), (102, queued.y))
    picture.label(110, 19, say((None,), Status.QUEUED))
    picture.arrow((failed.x, 90), queued.at(1, 0.5))
    picture.label(260, 78, say((Status.FAILED,), Status.QUEUED), anchor="middle")
    picture.arrow((52, 128), (52, waiting.y))
    picture.label(58, 148, say((Status.QUEUED, Status.FAILED), Status.WAITING))
    picture.arrow((106, waiting.y), (106, 114))
    picture.label(112, 200, say((Status.WAITING,), Status.QUEUED))
    picture.arrow((352, running.y), (352, 146), (146, 146), (146, 114))
    picture.label(206, 166, say((Status.RUNNING,), Status.QUEUED))
    picture.arrow((404, 128), (404, running.y))
    picture.label(399, 190, say((Status.QUEUED, Status.FAILED), Status.RUNNING), anchor="end")
    picture.arrow((440, running.y), (440, 114))
    picture.label(446, 180, say((Status.RUNNING,), Status.FAILED))
    picture.arrow(running.at(0, 0.5), waiting.at(1, 0.5))
    picture.label(244, 256, say((Status.RUNNING,), Status.WAITING), anchor="middle")
    picture.arrow((430, 292), (430, succeeded.y))
    picture.label(436, 376, say((Status.RUNNING,), Status.SUCCEEDED))
    picture.arrow((366, 292), (366, 326), (296, 326), (296, dead.y))
    picture.label(302, 344, say((Status.RUNNING,), Status.DEAD))
    picture.arrow((246, 308), (246, dead.y))
    picture.label(240, 342, say(LIVE, Status.DEAD) + ",\n" + say(STOPPED, Status.DEAD)
                  + "\n(unless it runs)", anchor="end")  # fmt: skip
    picture.arrow((86, 308), (86, cancelled.y))
    picture.label(80, 342, say(LIVE, Status.CANCELLED), anchor="end")
    return picture


def lease() -> Picture:
    """A worker that lost its lease, and writes late."""
    picture = Picture(
        "The lease, and a worker that is late",
        "Worker A claims a job: claim 1, with a lease. Then A freezes, and the lease expires. "
        "Worker B claims the job: claim 2. B finishes it. When A goes on and wants to finish the "
        "job, its claim is not the current one, and nothing is written.",
        height=402,
    )
    for y, name, kind in (
        (42, "Worker A", "work"),
        (128, "The job", "store"),
        (214, "Worker B", "work"),
    ):
        picture.label(16, y, name, kind, bold=True)
    picture.box(118, 24, 84, 36, small="runs", kind="work")
    picture.box(202, 24, 222, 36, small="frozen", dashed=True)
    picture.box(424, 24, 80, 36, small="goes on", kind="work")
    picture.box(118, 110, 152, 36, small="running: claim 1", kind="store")
    picture.box(300, 110, 86, 36, small="claim 2", kind="store")
    picture.box(386, 110, 118, 36, small="succeeded", kind="good")
    picture.box(300, 196, 86, 36, small="runs", kind="work")
    picture.arrow((132, 60), (132, 110))
    picture.arrow((314, 196), (314, 146))
    picture.arrow((372, 196), (372, 146), kind="good")
    picture.arrow((464, 60), (464, 110), kind="bad", dashed=True)
    picture.cross(464, 82)
    for number, x, y in ((1, 150, 85), (2, 270, 85), (3, 332, 171), (4, 390, 171), (5, 490, 85)):
        picture.badge(x, y, str(number))
    picture.line([(270, 97), (270, 152)], "wait")
    picture.legend(262, (
        "A claims the job: claim 1, with a lease.",
        "A cannot renew the lease while it is frozen: it expires.",
        "B claims the job: claim 2.",
        "B finishes the job: its claim is the current one.",
        "A is late: claim 1 is not current, so nothing is written.",
    ))  # fmt: skip
    return picture


POLICIES: tuple[tuple[str, RetryPolicy], ...] = (
    ('Exponential("10s", cap="1h")', Exponential("10s", cap="1h")),
    ('Linear("1m")', Linear("1m")),
    ('Quadratic("10s")', Quadratic("10s")),
    ('Fixed("5m")', Fixed("5m")),
    ('Delays("1m", "5m", "30m", "2h")', Delays("1m", "5m", "30m", "2h")),
)


def retries() -> Picture:
    """When the attempts of each retry policy begin."""
    plans = {
        name: [0.0, *accumulate(policy.plan_s(DEFAULT_MAX_ATTEMPTS))] for name, policy in POLICIES
    }
    longest_s = max(times_s[-1] for times_s in plans.values())
    picture = Picture(
        "Retry policies: when each attempt begins",
        "Ten attempts that fail, on a time axis that is not linear. "
        + " ".join(f"{name}: dead after {words(times_s[-1])}." for name, times_s in plans.items()),
        height=56 * len(plans) + 116,
    )

    def place(at_s: float) -> float:
        """Where a time is on the axis, which grows by the factor."""
        return 28 + 456 * math.log1p(at_s / 10) / math.log1p(longest_s / 10)

    y = 30.0
    for name, times_s in plans.items():
        picture.label(16, y, name, "yours", mono=True, size=14)
        picture.label(504, y, f"dead after {words(times_s[-1])}", "bad", anchor="end")
        picture.line([(28, y + 22), (484, y + 22)], "edge")
        for at_s in times_s[:-1]:
            picture.dot(place(at_s), y + 22, "work", 5)
        picture.dot(place(times_s[-1]), y + 22, "bad", 6)
        y += 56
    ticks = {"now": 0, "10 s": 10, "1 min": 60, "10 min": 600, "1 h": 3_600, "12 h": 43_200}
    picture.timeline(16, 508, y, [(place(at_s), text) for text, at_s in ticks.items()])
    said = (
        f"Each dot is an attempt that fails. The last of {DEFAULT_MAX_ATTEMPTS} leaves\n"
        "the job dead. A delay varies by up to a quarter."
    )
    picture.label(16, y + 48, said, "dim")
    return picture


EFFECTS: dict[str, tuple[tuple[int, str], ...]] = {
    "dead": ((1, "succeeded"), (0, "dead"), (1, "dead"), (1, "succeeded")),
    "skip": ((1, "succeeded"), (0, "succeeded"), (1, "succeeded"), (1, "succeeded")),
    "repeat": ((1, "succeeded"), (1, "succeeded"), (2, "succeeded"), (1, "succeeded")),
}
"""How often an effect happens that is interrupted at each of four points, and the job's end."""


def effects() -> Picture:
    """Where an attempt may end, and what becomes of its effect."""
    picture = Picture(
        "An effect whose attempt ends at one of four points",
        "Rota commits the intent, the provider gets the request, Rota commits the result. If the "
        "attempt ends before the intent or after the result, the effect happens once. In between "
        "it is uncertain, and if_uncertain decides. "
        + " ".join(
            f"{name}: " + ", ".join(f"{times} times and {end}" for times, end in row) + "."
            for name, row in EFFECTS.items()
        ),
        height=392,
    )
    picture.label(16, 30, "The worker is killed at 1, 2, 3 or 4:", bold=True, size=16)
    picture.line([(112, 86), (500, 86)])
    for x, text, kind in ((168, "intent\nstored", "store"), (268, "provider\nhas it", "yours"),
                          (368, "result\nstored", "store")):  # fmt: skip
        picture.box(x, 58, 72, 56, small=text, kind=kind)  # type: ignore[arg-type]
    columns = (108, 208, 308, 408)
    for number, x in enumerate(columns, 1):
        picture.badge(x + 46, 86, str(number), "bad")
    picture.label(16, 142, "if_uncertain", "dim")
    y = 134.0
    for name, row in EFFECTS.items():
        picture.label(16, y + 32, f'"{name}"', "yours", mono=True, size=14)
        for x, (times, end) in zip(columns, row, strict=True):
            outcome: Kind = "wait" if end == "dead" else "good" if times == 1 else "bad"
            picture.box(x, y, 92, 56, f"sent {times} ×", outcome, small=end)
        y += 66
    picture.label(16, y + 16, "At 2 and 3 Rota cannot know. You choose what is worse:\n"
                  "twice, never, or to look it up.", "dim")  # fmt: skip
    return picture


def one_by_one() -> Picture:
    """One after the other."""
    picture = thumbnail(
        "One after the other",
        "Jobs of invoice 7 run one after the other. A job of invoice 8 runs beside them.",
    )
    for y, name, jobs in ((56, "invoice:7", 3), (106, "invoice:8", 1)):
        picture.label(14, y + 17, name, "dim")
        for at in range(jobs):
            picture.box(92 + 38 * at, y, 32, 34, str(at + 1), "plain" if at else "work")
    picture.label(132, 123, "runs too", "dim")
    return picture


def at_once() -> Picture:
    """At most n at once."""
    picture = thumbnail(
        "At most 3 at once",
        "Three jobs run, over all workers. Three others wait until one of them has ended.",
    )
    picture.box(14, 52, 58, 92, dashed=True)
    for at in range(3):
        picture.box(23, 58 + 28 * at, 40, 24, kind="work")
        picture.box(104 + 34 * at, 84, 28, 28)
    picture.arrow((100, 98), (74, 98))
    picture.label(80, 66, "3 run", "work")
    picture.label(104, 132, "these wait", "dim")
    return picture


def per_minute() -> Picture:
    """N a minute."""
    picture = thumbnail("3 a minute", "On an axis of time, three jobs start in each minute.")
    for minute in range(3):
        for at in range(3):
            picture.box(22 + 58 * minute + 17 * at, 66, 13, 34, kind="work")
    picture.timeline(14, 206, 112, [(22, "0"), (80, "1"), (138, "2 min")])
    return picture


def breaker() -> Picture:
    """Stop while it is down."""
    picture = thumbnail(
        "Stop while it is down",
        "A host does not respond. Its jobs wait, and one of them tries now and then.",
    )
    picture.box(138, 58, 64, 82, "host", "bad", small="down")
    picture.box(14, 64, 34, 22, kind="work")
    picture.arrow((48, 75), (138, 75), kind="work", dashed=True)
    picture.label(91, 60, "one tries", "work", anchor="middle")
    for at in range(3):
        picture.box(14 + 20 * at, 96, 15, 44)
    picture.arrow((72, 118), (92, 118))
    picture.line([(96, 96), (96, 140)], "bad")
    picture.cross(116, 118)
    return picture


WAITS: tuple[tuple[str, Kind, str, str], ...] = (
    ("Is it due?", "store", "its time, or next attempt", "queued, failed"),
    ("Is its queue open?", "store", "it is resumed", "queued, failed"),
    ("Its ordered group?", "store", "the jobs before it end", "waiting · group KEY"),
    ("Its breaker?", "store", "the host works again", "queued · breaker NAME KEY"),
    ("Concurrency limits?", "store", "one of those that run ends",
     "waiting · type NAME, queue NAME"),
    ("Its rate limit?", "store", "its turn", "queued · limit NAME KEY"),
    ("A free slot?", "work", "one is, or it goes back", "running (claimed)"),
    ("The handler runs", "yours", "other jobs end, if it asks", "waiting · job ID"),
)  # fmt: skip
"""What is asked before a job runs, what it waits for if the answer is no, and what its row says."""


def waits() -> Picture:
    """Where a job can wait."""
    picture = Picture(
        "Where a job can wait",
        "Before a job runs these are asked, one after the other. If an answer is no, it waits: "
        + "; ".join(f"{asked} until {until} ({row})" for asked, _, until, row in WAITS),
        height=66 * len(WAITS) + 22,
    )
    for at, (asked, kind, until, row) in enumerate(WAITS):
        y = 16 + 66 * at
        box = picture.box(12, y, 206, 42, asked, kind)
        if at + 1 < len(WAITS):
            picture.arrow((115, y + 42), (115, y + 66))
        picture.arrow(box.at(1, 0.5), (238, box.at(1, 0.5)[1]), kind="wait", dashed=True)
        picture.label(244, y + 13, f"until {until}", "wait")
        picture.label(244, y + 31, row, "dim", mono=True, size=MONO)
    return picture


def thumbnail(title: str, about: str) -> Picture:
    """Return a small picture with its title."""
    picture = Picture(title, about, height=156, width=216)
    picture.label(14, 26, title, size=16, bold=True)
    return picture


def fan_out() -> Picture:
    """A batch, and the job that follows it."""
    picture = Picture(
        "A batch of jobs, and the job that follows it",
        "One transaction inserts a hundred jobs, which run beside each other on all workers. When "
        "the last of them has ended, one job more is enqueued, once.",
        height=318,
    )
    start = picture.box(16, 98, 116, 64, "app.batch", "yours", small="one commit")
    end = picture.box(388, 98, 116, 64, "then", "good", small="bind_report")
    for at, text in enumerate(("page 1", "page 2", "page 3", "…", "page 100")):
        page = picture.box(200, 16 + 48 * at, 108, 36, text, "plain" if text == "…" else "work")
        y = page.at(0, 0.5)[1]
        picture.arrow((162, 130), (162, y), (200, y))
        picture.line([(308, y), (346, y), (346, 130)])
    picture.line([start.at(1, 0.5), (162, 130)])
    picture.arrow((346, 130), end.at(0, 0.5))
    picture.label(16, 278, "The last page that ends enqueues the job that follows:\n"
                  "once, whichever workers die meanwhile.", "dim")  # fmt: skip
    return picture


def deploy() -> Picture:
    """A deploy without a stop: two releases beside each other."""
    picture = Picture(
        "A rolling deploy: two releases run beside each other",
        "First rota migrate changes the schema; the old release works with it too. Then workers of "
        "the new release start. Both run jobs of both releases. Then SIGTERM goes to the old "
        "workers: they claim nothing more, and end when their jobs have.",
        height=382,
    )
    for y, name, kind, left, right in (
        (34, "Release 41", "plain", 112, 382),
        (78, "Release 41", "plain", 112, 430),
        (130, "Release 42", "work", 236, 504),
        (174, "Release 42", "work", 262, 504),
    ):
        picture.label(16, y, name, kind, bold=True)
        picture.box(left, y - 17, right - left, 34, kind=kind)  # type: ignore[arg-type]
    for number, x in enumerate((166, 236, 330, 430), 1):
        picture.line([(x, 10), (x, 204)], "yours", dashed=True)
        picture.badge(x, 212, str(number))
    picture.legend(254, (
        "rota migrate. The old release still works.",
        "New workers start. Both releases run all jobs.",
        "SIGTERM: old workers claim nothing more, and return\nwhat they have not begun.",
        "The last of them ends: its jobs have ended.",
    ))  # fmt: skip
    return picture


RESULTS = ROOT / "bench" / "results"


def benchmark() -> Picture:
    """How fast one worker process drains a queue, as bench/results has it."""
    runs = [json.loads(file.read_text("utf-8")) for file in sorted(RESULTS.glob("python-*.json"))]
    speeds: dict[str, list[float]] = {}
    for run in runs:
        for figure in run["figures"]:
            if figure["part"] == "drain" and figure["unit"] == "jobs/s":
                speeds.setdefault(figure["name"].removesuffix(", no-op jobs"), []).append(
                    figure["value"]
                )
    order = sorted(speeds, key=lambda name: -speeds[name][0])
    pythons = [run["python"].rpartition(".")[0] for run in runs]
    most = max(max(values) for values in speeds.values())
    where = f"Python {' and '.join(pythons)}, {runs[0]['cores']} cores shared with PostgreSQL"
    data = f"Its data were {describe(runs[0]).partition(' (')[0]}"
    picture = Picture(
        "No-op jobs a second, of one worker process",
        f"{where}. {data}. "
        + " ".join(
            f"{name}: {' and '.join(f'{value:,.0f}' for value in speeds[name])}." for name in order
        ),
        height=74 * len(order) + 112,
    )
    picture.label(16, 28, "No-op jobs a second, one worker process", size=16, bold=True)
    y = 62.0
    for name in order:
        kind = "work" if name.startswith("Rota") else "plain"
        picture.label(16, y, name, kind, bold=True)
        for at, value in enumerate(speeds[name]):
            picture.label(16, y + 22 + 20 * at, pythons[at], "dim")
            picture.bar(58, y + 14 + 20 * at, 360 * value / most, 15, kind)
            picture.label(66 + 360 * value / most, y + 22 + 20 * at, f"{value:,.0f}")
        y += 74
    picture.label(16, y - 2, f"{where}.", "dim")
    picture.label(16, y + 18, f"{data}.", "dim")
    return picture


def life() -> Picture:
    """The way of a job through the code."""
    picture = Picture(
        "The way of a job through the code",
        "Enqueue inserts a row of job. A claim takes it with FOR UPDATE SKIP LOCKED into the "
        "buffer of a worker. When a slot is free and it may begin, a runner calls the "
        "handler, while the lease is renewed. Finish moves it to job_history, or back to job: "
        "retry, snooze, hand back, dead.",
        height=726,
    )
    stations: tuple[tuple[str, Kind, str, str], ...] = (
        ("enqueue", "yours", "client/enqueue.py, declare/payload.py", "INSERT"),
        ("row of job", "store", "store/ops/enqueue.py", "FOR UPDATE SKIP LOCKED"),
        ("claim", "work", "worker/claimer.py, frontier.py, store/ops/claim.py", ""),
        ("buffer and slots", "work", "worker/attempt.py, worker/slots.py", "a slot is free"),
        ("start", "work", "worker/executor.py, turns.py, starter.py", "may begin now"),
        ("runner: the handler runs", "work",
         "worker/runners.py, worker/processes/\nlease, meanwhile: worker/lease_keeper.py",
         "return or error"),
        ("settle and finish", "work",
         "worker/finisher.py, model/settle.py\nstore/ops/finish.py", "over"),
        ("row of job_history", "store", "the job does not change any more", ""),
    )  # fmt: skip
    boxes: dict[str, Box] = {}
    y = 16.0
    for name, kind, files, then in stations:
        height = 36 + 19 * (files.count("\n") + 1 if files else 0)
        boxes[name] = picture.box(76, y, 428, height, name, kind, small=files)
        if then or name == "claim":
            picture.arrow((290, y + height), (290, y + height + 30))
            picture.label(300, y + height + 14, then, "dim")
        y += height + 30
    row, finish = boxes["row of job"], boxes["settle and finish"]
    picture.arrow(
        finish.at(0, 0.5), (48, finish.at(0, 0.5)[1]), (48, row.at(0, 0.5)[1]), row.at(0, 0.5)
    )
    picture.label(58, finish.y - 15, "retry, snooze, dead, …", "dim")
    start, buffer = boxes["start"], boxes["buffer and slots"]
    picture.arrow((110, start.y), (110, buffer.y + buffer.height), dashed=True)
    picture.label(118, start.y - 15, "not now", "dim")
    return picture


SCREENS = ROOT / "scripts" / "screens"


def open_terminal(columns: int, rows: int, title: str, about: str, below: float = 0) -> Picture:
    """Return a picture that is a terminal of so many columns and rows."""
    width = 2 * TERMINAL_LEFT + measure(" " * columns, MONO, mono=True)
    return Picture(
        title, about, height=rows * ROW + 34 + below, width=math.ceil(width), page="screen"
    )


def read_screen(name: str) -> list[str]:
    """Return the lines that a command printed, after the command."""
    command = " ".join(map(str, COMMANDS[name][1:])).removesuffix(" --once")
    return [f"$ rota {command}", *(SCREENS / f"{name}.txt").read_text("utf-8").rstrip().split("\n")]


def top() -> Picture:
    """What `rota top` prints."""
    lines = read_screen("top")
    picture = open_terminal(
        COMMANDS["top"][0], len(lines), "The screen of rota top",
        "A live view: how many jobs are due, running and dead; the queues, of which invoices is "
        "paused; the running jobs, one with its progress; two workers; the last errors.",
    )  # fmt: skip
    kinds = ["yours", "ink", *("ink" if line.startswith(" ") else "work" for line in lines[2:])]
    picture.screen(zip(lines, kinds, strict=True))
    return picture


def job() -> Picture:
    """What `rota job` prints, explained."""
    lines = read_screen("job")
    calls = {
        "job 1": "The status, and when the job goes on.",
        "44 min ago  returned": "A worker was killed, and another one took the job.\n"
        "This did not use an attempt.",
        "44 min ago  failed": "An attempt failed: the error, when the job is retried,\n"
        "the rule that decided so, the worker and the release.",
        "payload": "The arguments. Secrets are masked.",
        "attempts": "How many attempts counted, of at most how many.",
    }
    marks = {
        next(at for at, line in enumerate(lines) if line.startswith(begin)): str(number)
        for number, begin in enumerate(calls, 1)
    }
    picture = open_terminal(
        COMMANDS["job"][0], len(lines), "The screen of rota job, with explanations",
        "What happened to a job, from the first event on, then its facts. " + " ".join(
            f"{number}: {text}".replace("\n", " ") for number, text in enumerate(calls.values(), 1)
        ),
        below=26 * len(calls) + 19 * sum("\n" in text for text in calls.values()) + 16,
    )  # fmt: skip
    kinds = ["yours", "work", *("ink" for _ in lines[2:])]
    below = picture.screen(zip(lines, kinds, strict=True), marks=marks)
    picture.line([(0, below + 4), (picture.width, below + 4)], "edge")
    picture.legend(below + 28, calls.values())
    return picture


DEMO_COLUMNS, DEMO_ROWS = 64, 20
REST_S = 5.0
"""How long the end stays."""


def demo() -> Picture:
    """What `rota demo` prints, as a loop: the lines rise as in a terminal."""
    lines = list(list_demo())
    picture = open_terminal(
        DEMO_COLUMNS, DEMO_ROWS, "The command rota demo",
        "It plays an evening and a morning of a small shop in half a minute, on a private "
        "PostgreSQL. Workers are killed and a CRM is down. At the end it shows each promise with "
        "what the database says: 24 of 24 as expected.",
    )  # fmt: skip
    total_s = lines[-1][0] + REST_S
    shown = [(at_s / total_s * 100, row) for row, (at_s, _, _) in enumerate(lines, 1)]
    rolls = [(0.0, 0.0)] + [(at, (row - DEMO_ROWS) * -ROW) for at, row in shown if row > DEMO_ROWS]
    covers = [(at, row * ROW) for at, row in shown if row <= DEMO_ROWS]
    end = rolls[-1][1]
    picture.style = "\n".join([
        f".roll{{transform:translateY({end:g}px);animation:roll {total_s:.1f}s step-end infinite}}",
        f".cover{{transform:translateY({DEMO_ROWS * ROW:g}px);"
        f"animation:cover {total_s:.1f}s step-end infinite}}",
        _keyframes("roll", rolls),
        _keyframes("cover", covers),
        "@media (prefers-reduced-motion: reduce){.roll,.cover{animation:none}}",
    ])  # fmt: skip
    frame = f'width="{picture.width - 2:g}" height="{DEMO_ROWS * ROW:g}"'
    picture.add(f'<svg x="1" y="17" {frame}><g class="roll">')
    picture.screen(((line, kind) for _, line, kind in lines), top=ROW / 2)
    picture.add(f'</g><rect class="cover" {frame} fill="var(--screen)"/></svg>')
    return picture


def list_demo() -> Iterator[tuple[float, str, str]]:
    """Yield each line of the loop: when it comes, its text and its kind. Pauses are shorter than
    they were, and lines are broken where this terminal ends."""
    yield 0.0, "$ rota demo", "yours"
    at_s, before_s = 0.6, 0.0
    for said_s, line in read_demo():
        if before_s:
            at_s += min(1.3, max(0.12, 0.5 * (said_s - before_s)))
        before_s = said_s
        if line.startswith("  ") and not line.startswith("  $"):  # a row of a table
            yield at_s, line if len(line) <= DEMO_COLUMNS else line[: DEMO_COLUMNS - 1] + "…", "ink"
            continue
        kinds = {"  $": "yours", "24 ": "good"}
        begin = re.match(r"(Sun|Mon) \S+  |ok     |  \$ |", line)
        indent = " " * len(begin[0] if begin else "")
        for part in textwrap.wrap(line, DEMO_COLUMNS, subsequent_indent=indent) or [""]:
            yield at_s, part, kinds.get(line[:3], "ink")


def read_demo() -> Iterator[tuple[float, str]]:
    """Yield each line that the demo printed, with its second; what it had broken is whole again."""
    text = (SCREENS / "demo.txt").read_text("utf-8")
    for row in re.sub(r"\n.{6}( {7}|(?=clock of))(?=\S)", " ", text).splitlines():
        yield float(row[:5]), row[6:]


def _keyframes(name: str, stops: list[tuple[float, float]]) -> str:
    rules = "".join(f"{at:.2f}%{{transform:translateY({y:g}px)}}" for at, y in stops)
    return f"@keyframes {name}{{{rules}100%{{transform:translateY({stops[-1][1]:g}px)}}}}"


DRAWN: tuple[Callable[[], Picture], ...] = (
    parts, commit, states, lease, retries, effects, one_by_one, at_once, per_minute, breaker,
    waits, fan_out, deploy, benchmark, life, top, job, demo,
)  # fmt: skip


def name_of(draw: Callable[[], Picture]) -> str:
    """Return the name of the file that a function draws."""
    return draw.__name__.replace("_", "-")


def main() -> int:
    """Write the pictures that changed, or list them."""
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit("usage: scripts/drawings.py [--check]")
    stale = 0
    for draw in DRAWN:
        path = PICTURES / f"{name_of(draw)}.svg"
        text = draw().text()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"docs/pictures/{path.name} is out of date: make pictures")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/pictures/{path.name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
