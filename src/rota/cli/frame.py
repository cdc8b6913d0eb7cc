"""Makes the lines of one frame of `rota top` from facts and the size of the screen. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from rich.text import Text

from rota.cli.listing import Field, Listing, count, label, number, span
from rota.cli.output import Times, clean
from rota.cli.table import Kind
from rota.model.bounds import COUNT_MAX
from rota.model.units import age, show_count, words

FRAME_COUNT_MAX = 1_000
"""Most jobs of a queue that are counted, so that a full queue costs little to show."""
MARGIN = "  "


def count_finished(worker: dict[str, Any]) -> int | None:
    """Count a worker's finished attempts. None: a worker in another language does not report it."""
    if worker["succeeded"] is None:
        return None
    return int(worker["succeeded"] + worker["failed"] + worker["dead"])


def frame(
    facts: dict[str, Any], *, width: int, height: int, stale_why: str | None = None
) -> list[Text]:
    """Make at most `height` lines, at most `width` wide. `stale_why`: why the facts are stale."""
    alive = sum(worker["is_alive"] for worker in facts["workers"])
    due = show_count(sum(queue["due"] for queue in facts["queues"]), FRAME_COUNT_MAX)
    dead = show_count(facts["dead"], FRAME_COUNT_MAX)
    head = (
        f"due {due} · running {show_count(facts['running_count'], COUNT_MAX)}"
        f" · workers {alive} · {facts['finished_per_s']:.1f} finished/s · dead {dead}"
    )
    stopped = _name_stop(facts["paused_all"])
    lines = [Text(clean(stale_why or f"{stopped}{head}"))]
    lines[0].stylize("bold red" if stale_why or stopped else "bold")
    sections = [
        (QUEUES, _list_queues(facts)),
        (WAITS, list_waits(facts["waits"])),
        (BATCHES, facts["batches"]),
        (RUNNING, facts["running"]),
        (WORKERS, facts["workers"]),
        (ERRORS, facts["errors"]),
    ]
    # Waits and batches are rare, and shown only if there are any.
    sections = [
        (listing, rows) for listing, rows in sections if rows or listing not in (WAITS, BATCHES)
    ]
    times = Times(datetime.fromisoformat(facts["at"]))
    # The sections share the screen: a short section leaves its room to the others.
    room = height - len(lines) - 2 * len(sections)
    shown = _share([len(rows) for _, rows in sections], max(0, room))
    for (listing, rows), most in zip(sections, shown, strict=True):
        more = f" ({len(rows) - most} more)" if most < len(rows) else ""
        title = f"{listing.name}{more}" if rows else f"{listing.name}: {listing.empty}"
        lines.append(Text(title, style="bold cyan"))
        if most:
            table = listing.lay_out(rows[:most], times, width - len(MARGIN), one_line=True)
            table[0].style = "dim"
            lines += [Text(MARGIN) + line for line in table]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def _name_stop(pause: dict[str, Any] | None) -> str:
    if pause is None:
        return ""
    return "RESTORED COPY: NOTHING RUNS · " if pause["copied"] else "EVERYTHING IS PAUSED · "


def _share(wanted: list[int], room: int) -> list[int]:
    """Distribute lines evenly among the sections, at most as many as each wants."""
    given = [0] * len(wanted)
    while room and given != wanted:
        for at, most in enumerate(wanted):
            if room and given[at] < most:
                given[at] += 1
                room -= 1
    return given


def _list_queues(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the queues with due or future jobs, then the paused queues without jobs."""
    busy = [row | {"paused": row["queue"] in facts["paused"]} for row in facts["queues"]]
    idle = sorted(set(facts["paused"]) - {row["queue"] for row in busy})
    nothing = {"priority": None, "due": 0, "later": 0, "oldest_due_s": None, "paused": True}
    return busy + [{"queue": name, **nothing} for name in idle]


class Wait(NamedTuple):
    """A reason for which jobs wait, in words."""

    what: str
    jobs: str
    """Number of jobs; empty: not counted."""
    since: str
    why: str


def list_waits(facts: dict[str, Any]) -> list[Wait]:
    """Return the groups, limits, breakers and awaited jobs that hold jobs back."""

    waits = [
        _wait(f"lane {lane['group_key']}", f"halted by job {lane['job']}", lane["since_s"])
        for lane in facts["halted"]
    ]
    for breaker in facts["breakers"]:
        name = " ".join(filter(None, ("breaker", breaker["name"], breaker["key"])))
        waits.append(_wait(name, f"open: {breaker['reason'] or 'no reason'}", breaker["open_s"]))
    for limit in (*facts["caps"], *facts["limits"]):
        why = f"the last in {words(limit['ahead_s'])}" if limit["ahead_s"] > 0 else ""
        waits.append(_wait(limit["name"], why, limit["since_s"], limit["jobs"]))
    others = {"ordered groups and concurrency limits": "laned", "other jobs to end": "awaiting"}
    return waits + [_wait(what, jobs=facts[key]) for what, key in others.items() if facts[key]]


def _wait(what: str, why: str = "", since_s: float | None = None, jobs: int | None = None) -> Wait:
    counted = "" if jobs is None else show_count(jobs, FRAME_COUNT_MAX)
    return Wait(what, counted, "" if since_s is None else words(since_s), why)


def name_state(state: str, quiet_s: float) -> str:
    """Return whether a worker is alive, and when it was last seen: a killed worker counts as alive
    until its heartbeat is late.

    Args:
        state: from the SQL function `liveness_of`.
        quiet_s: seconds since its last heartbeat, or since it stopped.
    """
    match state:
        case "silent" | "gone":
            return f"{state} for {words(round(quiet_s))}"
        case "stopped":
            return f"stopped {age(quiet_s)}"
        case "alive":
            return f"seen {age(quiet_s)}"
    return state


def _show_progress(job: dict[str, Any], _: Times) -> str:
    if job["done"] is None:
        return ""
    of = f"/{job['total']}" if job["total"] is not None else ""
    return f"{job['done']}{of} {job['note'] or ''}".rstrip()


def _show_busy(worker: dict[str, Any], _: Times) -> str:
    of = "" if worker["slots"] is None else f"/{worker['slots']}"
    return f"{worker['running']}{of}"


def _show_attempts(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _name_outcome(attempt: dict[str, Any], _: Times) -> str:
    return "failed, retried" if attempt["outcome"] == "failed" else str(attempt["outcome"])


def _show_error(attempt: dict[str, Any], _: Times) -> str:
    return f"{attempt['error_type'] or ''}: {attempt['message'] or ''}"


def _count_failed(batch: dict[str, Any]) -> int:
    return int(batch["dead"] + batch["cancelled"])


def _show_done(batch: dict[str, Any], _: Times) -> str:
    return f"{batch['succeeded'] + _count_failed(batch):,}/{batch['total']:,}"


QUEUES = Listing(
    "queues",
    (
        label("queue"),
        number("priority"),
        count("due", most=FRAME_COUNT_MAX),
        count("later", most=FRAME_COUNT_MAX),
        span("oldest", "oldest_due_s"),
        Field("", lambda queue, _: "paused" if queue["paused"] else None),
    ),
)
WAITS = Listing(
    "waiting",
    (label("wait for", "what"), number("jobs"), "since", Field("", "why", Kind.ERROR)),
)
BATCHES = Listing(
    "batches",
    (
        Field("batch", "id"),
        number("done", _show_done),
        number("failed", lambda batch, _: f"{_count_failed(batch):,}"),
        Field("made", lambda batch, _: age(batch["made_s"])),
    ),
)
RUNNING = Listing(
    "running",
    (
        "id",
        Field("type", "job_type"),
        span("since", "ran_s"),
        Field("progress", _show_progress, Kind.ERROR),
        label("worker"),
    ),
)
WORKERS = Listing(
    "workers",
    (
        label("worker", "name"),
        Field("state", lambda worker, _: name_state(worker["state"], worker["quiet_s"])),
        number("running", _show_busy),
        number("finished", lambda worker, _: _show_attempts(count_finished(worker))),
        number("failed", lambda worker, _: _show_attempts(worker["failed"])),
        number("dead", lambda worker, _: _show_attempts(worker["dead"])),
        label("release"),
    ),
)
ERRORS = Listing(
    "last errors",
    (
        Field("when", lambda error, _: age(error["ago_s"])),
        "job",
        Field("type", "job_type"),
        Field("outcome", _name_outcome),
        Field("error", _show_error, Kind.ERROR),
    ),
)
