"""`rota queues pause` and `resume`: one queue, everything, or a restored copy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.cli.flags import argument, flag, option
from rota.cli.output import Times, print_json, print_text
from rota.cli.target import Reason, Viewer
from rota.client.queues import check_lasting
from rota.errors import UsageError
from rota.model.bounds import check_queue
from rota.records import Pause


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long something lasts: the options of the commands that begin it."""

    duration: str | None = option("--for DURATION", "How long: 2h. Default: no end.")
    until: str | None = option(
        "--until TIME", "When it ends: a local time (2026-01-14T18:00), or one with UTC offset."
    )

    def read(self) -> dict[str, Any]:
        """Return them as the client takes them. Raises UsageError."""
        try:
            at = None if self.until is None else datetime.fromisoformat(self.until).astimezone()
        except (ValueError, OverflowError):
            raise UsageError(
                f"--until must be a time such as 2026-01-14T18:00, not {self.until!r}; "
                "--for takes a duration such as 2h"
            ) from None
        check_lasting(self.duration, at)  # before it connects
        return {"duration": self.duration, "until": at}


def pause(
    queue: str | None = argument("QUEUE", "Name of a queue; or give --all.", default=None),
    everything: bool = flag("--all", "Pause everything: all queues and all schedules."),
    *,
    lasting: Lasting,
    reason: Reason,
    viewer: Viewer,
) -> None:
    """Pause a queue, or everything: no further jobs start.

    Running jobs continue, and new jobs can be enqueued.
    """
    _refuse_unclear(queue=queue is not None, all=everything)
    lasts = lasting.read()
    if queue is not None:
        check_queue(queue, "a queue's name")  # before it connects
    with viewer.session() as opened:
        said: Any = {**lasts, "why": reason.why, "by": reason.by}
        queues = opened.queues
        paused = queues.pause_all(**said) if queue is None else queues.pause(queue, **said)
        times = viewer.read_times(opened)
    if viewer.as_json:
        print_json({"paused": paused})
    else:
        print_text(f"{what(paused)}: {in_words(paused, times)}")


def resume(
    queue: str | None = argument(
        "QUEUE", "Name of a queue; or give --all or --copy.", default=None
    ),
    everything: bool = flag(
        "--all", "End a pause of everything. Queues paused by name stay paused."
    ),
    copy: bool = flag(
        "--copy", "Allow this restored copy of a database to run jobs and schedules."
    ),
    *,
    reason: Reason,
    viewer: Viewer,
) -> None:
    """End a pause. Does nothing, and says so, if nothing was paused."""
    _refuse_unclear(queue=queue is not None, all=everything, copy=copy)
    if queue is not None:
        check_queue(queue, "a queue's name")  # before it connects
    with viewer.session() as opened, opened.connection.transaction():
        said: Any = {"why": reason.why, "by": reason.by}
        behind = opened.ids_behind() if copy else []
        if copy:
            name, resumed = "this copy", opened.queues.resume_copy(**said)
        elif queue is None:
            name, resumed = "everything", opened.queues.resume_all(**said)
        else:
            name, resumed = f"queue {queue}", opened.queues.resume(queue, **said)
        left = opened.queues.pauses()
        times = viewer.read_times(opened)
    moved = [{"sequence": one.sequence, "last_id": one.highest_id} for one in behind]
    if viewer.as_json:
        print_json({"resumed": resumed, "still_paused": left} | ({"moved": moved} if copy else {}))
        return
    unchanged = "this is not a restored copy" if copy else f"{name} was not paused"
    print_text(f"{name} resumed" if resumed else unchanged)
    for one in moved:
        print_text(f"{one['sequence']} was behind its ids: moved to {one['last_id']}")
    for paused in left:
        print_text(f"still paused: {what(paused)}: {in_words(paused, times)}")


def what(paused: Pause) -> str:
    return "everything" if paused.queue is None else f"queue {paused.queue}"


def in_words(paused: Pause, times: Times) -> str:
    """Say since when, until when, by whom and why."""
    ends = (
        "until it is resumed"
        if paused.paused_until is None
        else f"ends {times.show(paused.paused_until)}"
    )
    why = "" if paused.paused_why is None else f": {paused.paused_why}"
    return f"paused {times.show(paused.paused_at)} by {paused.paused_by}, {ends}{why}"


def _refuse_unclear(**given: bool) -> None:
    if sum(given.values()) != 1:
        options = ", ".join(f"--{name}" for name in given if name != "queue")
        raise UsageError(f"give exactly one of: a queue, {options}")
