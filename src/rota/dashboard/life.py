"""The life of a job as one bar: when it waited, ran and was put off. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import NamedTuple

from markupsafe import Markup

from rota.model.awaited import has_awaited
from rota.model.job import Job, Status
from rota.model.units import words
from rota.records import AttemptRecord

KINDS = {
    "later": "not due", "due": "due, not started", "held": "held up",
    "failed": "in failed attempts", "given-back": "in attempts without an outcome",
    "running": "running", "succeeded": "ran",
}  # fmt: skip
"""What a job does in a part of its life, by the class that styles it."""
DRAWN_MAX = 60
"""Most parts that are drawn: the middle of a longer life becomes one part."""
FIRST = 15
"""How many parts before that middle are drawn."""
LEAST = 0.8
"""Width of the shortest part, in hundredths of the bar."""
ROOM = {"took": (4.5, 16.0), "time": (8.0, 27.0), "end": (10.0, 37.0)}
"""Room that texts need on a wide and on a narrow screen: a duration above the bar, a time below
it, and a time beside one of its ends."""


class Part(NamedTuple):
    kind: str
    begin: datetime
    end: datetime
    text: str

    @property
    def lasted_s(self) -> float:
        return (self.end - self.begin).total_seconds()


def list_parts(job: Job, attempts: Sequence[AttemptRecord], now: datetime) -> list[Part]:
    """Return the parts of a job's life, each from where the last ended; that of a job that is not
    settled ends at `now`. When a job that has failed was first due is not known."""
    parts: list[Part] = []
    at, due = job.created_at, job.created_at if attempts else job.run_at
    for one in attempts:
        parts += _list_waits(at, due, one.started_at or one.finished_at)
        if one.started_at is not None:
            kind = "failed" if one.outcome in ("failed", "dead") else "given-back"
            text = f"attempt {one.attempt}, {one.error_type or one.outcome}"
            parts.append(Part(kind, one.started_at, one.finished_at, text))
        at, due = one.finished_at, one.next_run_at or one.finished_at
    began = job.started_at if job.status in (Status.RUNNING, Status.SUCCEEDED) else None
    if began is not None:
        parts += _list_waits(at, due, began)
        if has_awaited(job) and not attempts:  # it is due again when they have ended
            parts[0] = parts[0]._replace(kind="held", text="for other jobs")
        kind = "running" if job.status is Status.RUNNING else "succeeded"
        text = f"attempt {job.attempts} by {job.locked_by}"
        parts.append(Part(kind, max(at, began), job.finished_at or now, text))
    elif job.status is Status.CANCELLED:
        parts += _list_waits(at, due, job.finished_at or now)
    elif not job.status.is_settled:
        parts += _list_open(job, at, now)
    return [part for part in parts if part.begin < part.end]


def _list_waits(at: datetime, due: datetime, began: datetime) -> Iterator[Part]:
    due = min(max(at, due), began)
    yield Part("later", at, due, "until it was due")
    yield Part("due", due, began, "until a worker began")


def _list_open(job: Job, at: datetime, now: datetime) -> Iterator[Part]:
    held_from = now if job.wait is None else min(max(at, job.wait.since), now)
    yield from _list_waits(at, job.run_at, held_from)
    if job.wait is not None:
        yield Part("held", held_from, now, f"{job.wait.what} {job.wait.text}")


def sum_parts(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return the kinds in a life, and how long each lasted in all, in words."""
    sums = {
        kind: sum(part.lasted_s for part in parts if part.kind == kind)
        for kind in KINDS
        if any(part.kind == kind for part in parts)
    }
    return [(kind, f"{KINDS[kind]} {words(lasted_s)}") for kind, lasted_s in sums.items()]


def draw_life(parts: Sequence[Part], *, is_live: bool) -> Markup:
    """Draw parts beside each other, by their lengths; the shortest can still be seen, and times say
    how long each is. The life of a job that `is_live` ends now."""
    if not parts:
        return Markup()
    drawn = _fold(parts)
    widths = share([part.lasted_s for part in drawn])
    lefts = [0.0, *accumulate(widths)]
    begin, end = drawn[0].begin, drawn[-1].end
    shapes = Markup().join(
        Markup(
            '<rect class="{}" x="{:.2f}%" y="20" width="{:.2f}%" height="24"><title>{}</title>'
            "</rect>"
        ).format(part.kind, left, width, _describe(part))
        for part, left, width in zip(drawn, lefts, widths, strict=False)
    )
    took = [
        (left + width / 2, width, words(part.lasted_s))
        for part, left, width in zip(drawn, lefts, widths, strict=False)
    ]
    shapes += Markup().join(
        _write(x, 13, text, is_fine=width < ROOM["took"][1])
        for x, width, text in took
        if width > ROOM["took"][0]
    )
    shapes += _write(0, 60, show_instant(begin, end), "first")
    shapes += _write(100, 60, "now" if is_live else show_instant(end, begin), "last")
    shapes += _mark_borders(
        [(left, f"+{words((part.begin - begin).total_seconds())}")
         for left, part in zip(lefts[1:], drawn[1:], strict=False)]
    )  # fmt: skip
    said = "; ".join(text for _, text in sum_parts(parts))
    until = "now" if is_live else f"{end.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<svg class="life" role="img" aria-label="{}">{}</svg>').format(
        f"From {begin.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC until {until}: {said}", shapes
    )


def share(lengths: Sequence[float]) -> list[float]:
    """Divide a width of 100 by lengths; each gets LEAST at least, for which the others give way."""
    widths = [0.0] * len(lengths)
    left, total = 100.0, sum(lengths)
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        widths[place] = max(LEAST, left * lengths[place] / total)
        left -= widths[place]
        total -= lengths[place]
    return widths


def _fold(parts: Sequence[Part]) -> list[Part]:
    last = FIRST + len(parts) - DRAWN_MAX
    if last <= FIRST:
        return list(parts)
    text = f"{last - FIRST} parts that are not drawn"
    middle = Part("folded", parts[FIRST].begin, parts[last - 1].end, text)
    return [*parts[:FIRST], middle, *parts[last:]]


def _describe(part: Part) -> str:
    kind = KINDS.get(part.kind, "")
    when = f"{show_instant(part.begin, part.end)} to {show_instant(part.end, part.begin)}"
    return f"{kind} {words(part.lasted_s)}: {part.text}; {when}".lstrip()


def show_instant(at: datetime, other: datetime) -> str:
    """Write an instant, with the day if another is of another day."""
    at, other = at.astimezone(UTC), other.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == other.date() else f"{at:%b %d %H:%M} UTC"


def _mark_borders(borders: Sequence[tuple[float, str]]) -> Markup:
    """Write the times of borders that have room for them; less on a narrow screen."""
    (wide, narrow), (at_wide, at_narrow) = ROOM["time"], ROOM["end"]
    last_wide, last_narrow = 100 - at_wide, 100 - at_narrow
    marks = Markup()
    for left, text in borders:
        if at_wide <= left <= last_wide:
            is_fine = not at_narrow <= left <= last_narrow
            marks += _write(left, 60, text, is_fine=is_fine)
            at_wide = left + wide
            at_narrow = at_narrow if is_fine else left + narrow
    return marks


def _write(x: float, y: int, text: str, side: str = "", *, is_fine: bool = False) -> Markup:
    return Markup('<text class="{}" x="{:.2f}%" y="{}">{}</text>').format(
        "fine" if is_fine else side, x, y, text
    )
