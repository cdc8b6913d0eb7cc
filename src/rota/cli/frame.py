"""Makes the lines of one frame of `rota top`. Pure: from facts and the size of the screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from rota.cli.output import cell
from rota.cli.table import Column, Kind, lay_out
from rota.model.bounds import COUNT_MAX
from rota.model.units import age, show_count, words

FRAME_COUNT_MAX = 1_000
"""Jobs of a queue are counted up to this number, so that a full queue costs little to show."""
MARGIN = "  "


@dataclass(slots=True)
class Rates:
    """Attempts per second of each worker, between its last two heartbeats."""

    _before: dict[str, tuple[float, int]] = field(default_factory=dict)
    _rates: dict[str, float] = field(default_factory=dict)
    _is_first: bool = True

    def see(self, workers: Iterable[dict[str, Any]]) -> float:
        """Update the rates from the workers' rows; return the sum of the rates."""
        now: dict[str, tuple[float, int]] = {}
        rates: dict[str, float] = {}
        for one in workers:
            if (done := count_finished(one)) is None:
                continue
            at = float(one["heartbeat_epoch_s"])
            before, done_before = self._before.get(
                one["name"], (at - one["up_s"] + one["silent_s"], 0)
            )
            now[one["name"]] = (at, done)
            rates[one["name"]] = (
                (done - done_before) / (at - before)
                if at > before
                else self._rates.get(one["name"], 0.0)
            )
            if at <= before:
                now[one["name"]] = (before, done_before)
            if one["stopped"] and (
                self._is_first or self._before.get(one["name"], (0.0,))[0] == at
            ):
                rates[one["name"]] = 0.0  # also of drains that ended before the first frame
        self._before, self._rates, self._is_first = now, rates, False
        return sum(rates.values())


def count_finished(worker: dict[str, Any]) -> int | None:
    """Count a worker's finished attempts. None: a worker in another language does not report it."""
    return (
        None
        if worker["succeeded"] is None
        else int(worker["succeeded"] + worker["failed"] + worker["dead"])
    )


def frame(
    facts: dict[str, Any], rate: float, *, width: int, height: int, stale_why: str | None = None
) -> list[Text]:
    """Make at most `height` lines, at most `width` wide. `stale_why`: why the facts are stale."""
    alive = [one for one in facts["workers"] if one["is_alive"]]
    due = show_count(sum(one["due"] for one in facts["queues"]), FRAME_COUNT_MAX)
    dead = show_count(facts["dead"], FRAME_COUNT_MAX)
    head = (
        f"due {due} · running {show_count(facts['running_count'], COUNT_MAX)}"
        f" · workers {len(alive)} · {rate:.1f} finished/s · dead {dead}"
    )
    stopped = _name_stop(facts["installation"])
    lines = [cell(stale_why or f"{stopped}{head}").copy()]
    lines[0].stylize("bold red" if stale_why or stopped else "bold")
    # Few have the second and the third; they are shown only if there is something to show.
    rare = [one for one in (list_waits(facts["waits"]), _batches(facts)) if one[2]]
    sections = [_queues(facts), *rare, _running(facts), _workers(facts), _errors(facts)]
    # The sections share the screen: a section that needs less leaves the rest to the others.
    room = height - len(lines)
    shown = _share([len(rows) for _, _, rows in sections], max(0, room - 2 * len(sections)))
    for (title, columns, rows), count in zip(sections, shown, strict=True):
        more = f" ({len(rows) - count} more)" if count < len(rows) else ""
        lines.append(Text(f"{title}{more}" if rows else f"{title}: none", style="bold cyan"))
        if rows and count:
            lines += _lines(columns, rows[:count], width)
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
    while room and any(one < most for one, most in zip(given, wanted, strict=True)):
        for at, most in enumerate(wanted):
            if room and given[at] < most:
                given[at] += 1
                room -= 1
    return given


_Columns = tuple[Column | str, ...]
_Section = tuple[str, _Columns, list[tuple[Any, ...]]]


def _lines(columns: _Columns, rows: list[tuple[Any, ...]], width: int) -> list[Text]:
    cells = [[" ".join(cell(value).plain.split()) for value in row] for row in rows]
    titles, *lines = lay_out(columns, cells, width - len(MARGIN), one_line=True)
    titles.style = "dim"
    return [Text(MARGIN) + line for line in (titles, *lines)]


def _numbers(*titles: str) -> list[Column]:
    return [Column(title, Kind.NUMBER) for title in titles]


def _queues(facts: dict[str, Any]) -> _Section:
    paused = set(facts["paused"])
    rows = [
        (
            one["queue"],
            one["priority"],
            show_count(one["due"], FRAME_COUNT_MAX),
            show_count(one["later"], FRAME_COUNT_MAX),
            words(one["waiting_s"]) if one["due"] else "",
            "paused" if one["queue"] in paused else "",
        )
        for one in facts["queues"]
    ]
    idle = sorted(paused - {one["queue"] for one in facts["queues"]})
    columns: _Columns = (
        Column("queue", Kind.NAME),
        *_numbers("priority", "due", "later"),
        "oldest",
        "",
    )
    return "queues", columns, rows + [(name, "", 0, 0, "", "paused") for name in idle]


def list_waits(facts: dict[str, Any]) -> _Section:
    """Show lanes, caps, limits, breakers and awaited jobs only while they hold jobs back."""
    laned = show_count(facts["laned"], FRAME_COUNT_MAX)
    rows: list[tuple[Any, ...]] = [
        (f"lane {one['group_key']}", "", words(one["since_s"] or 0), f"halted by job {one['job']}")
        for one in facts["halted"]
    ]
    rows += [
        (
            " ".join(filter(None, ("breaker", one["name"], one["key"]))),
            "",
            words(one["open_s"] or 0),
            f"open: {one['reason'] or 'no reason'}",
        )
        for one in facts["breakers"]
    ]
    rows += [
        (
            one["name"],
            show_count(one["jobs"], FRAME_COUNT_MAX),
            words(one["since_s"] or 0),
            f"the last in {words(one['ahead_s'])}" if one["ahead_s"] > 0 else "",
        )
        for one in (*facts["caps"], *facts["limits"])
    ]
    if facts["laned"]:
        rows.append(("ordered groups and concurrency limits", laned, "", ""))
    if facts["awaiting"]:
        awaiting = show_count(facts["awaiting"], FRAME_COUNT_MAX)
        rows.append(("other jobs to end", awaiting, "", ""))
    columns: _Columns = (
        Column("wait for", Kind.NAME),
        *_numbers("jobs"),
        "since",
        Column("", Kind.ERROR),
    )
    return "waiting", columns, rows


def _batches(facts: dict[str, Any]) -> _Section:
    rows = []
    for one in facts["batches"]:
        failed = one["dead"] + one["cancelled"]
        done = f"{one['succeeded'] + failed:,}/{one['total']:,}"
        rows.append((one["id"], done, f"{failed:,}", age(one["made_s"])))
    columns: _Columns = ("batch", *_numbers("done", "failed"), "made")
    return "batches", columns, rows


def _running(facts: dict[str, Any]) -> _Section:
    rows = [
        (one["id"], one["job_type"], _ran(one["ran_s"]), _progress(one), one["worker"])
        for one in facts["running"]
    ]
    columns: _Columns = (
        "id",
        "type",
        "since",
        Column("progress", Kind.ERROR),
        Column("worker", Kind.NAME),
    )
    return "running", columns, rows


def _ran(ran_s: float | None) -> str:
    return "" if ran_s is None else words(ran_s)  # only a row that somebody inserted has no start


def _progress(job: dict[str, Any]) -> str:
    if job["done"] is None:
        return ""
    of = f"/{job['total']}" if job["total"] is not None else ""
    return f"{job['done']}{of} {job['note'] or ''}".rstrip()


def _workers(facts: dict[str, Any]) -> _Section:
    rows = []
    for one in facts["workers"]:
        busy = f"{one['running']}/{one['slots']}" if one["slots"] is not None else one["running"]
        state = name_state(one["state"], one["quiet_s"])
        counts = (
            "-" if count is None else f"{count:,}"
            for count in (count_finished(one), one["failed"], one["dead"])
        )
        rows.append((one["name"], state, busy, *counts, one["release"]))
    columns: _Columns = (
        Column("worker", Kind.NAME),
        "state",
        *_numbers("running", "finished", "failed", "dead"),
        Column("release", Kind.NAME),
    )
    return "workers", columns, rows


def name_state(state: str, quiet_s: float) -> str:
    """Say whether a worker is alive, and when it was last seen: one that was killed counts as alive
    until its heartbeat is late.

    Args:
        state: as of the SQL function `worker_state`.
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


def _errors(facts: dict[str, Any]) -> _Section:
    rows = [
        (
            age(one["ago_s"]),
            one["job"],
            one["job_type"],
            "failed, retried" if one["outcome"] == "failed" else one["outcome"],
            f"{one['error_type'] or ''}: {one['message'] or ''}",
        )
        for one in facts["errors"]
    ]
    columns: _Columns = ("when", "job", "type", "outcome", Column("error", Kind.ERROR))
    return "last errors", columns, rows
