"""Pauses queues, or everything, and lets them go on."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rota.client.base import Asking, reason, who
from rota.errors import UsageError
from rota.model.bounds import check_aware, check_queue
from rota.model.units import Duration, seconds
from rota.store import ops
from rota.store.ops import Pause, Until

if TYPE_CHECKING:
    from rota.store.driver import Operation

PAUSE_S_MIN = 0.001


class Pausing(Asking):
    """Pauses and resumes."""

    def pause_queue(
        self,
        name: str,
        *,
        until: Duration | datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Pause:
        """Pause a queue: no claim that begins after the return takes a job of it. What runs goes on, what fails waits for its retry beyond the pause,
        and enqueueing goes on. The queue need not have had a job yet. Paused again, the newest `until`, `why` and `by` hold.

        Args:
            until: when it resumes by itself: a duration from now, by the database's clock, or an aware instant. Defaults to never.
            why: kept with the queue and with the action, on one line of at most 500 characters.
            by: who pauses, at most 200 characters. Defaults to `user@host` of this process.

        Raises:
            UsageError: the name, `why` or `by` cannot be stored, or `until` has passed.
        """
        return self._run(_pause_queue(name, until, why, by))

    async def apause_queue(
        self,
        name: str,
        *,
        until: Duration | datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Pause:
        """Pause a queue. Raises as `pause_queue`."""
        return await self._arun(_pause_queue(name, until, why, by))

    def resume_queue(self, name: str, *, why: str | None = None, by: str | None = None) -> bool:
        """Resume a queue; return whether it was paused. If it was not, nothing is written. Raises UsageError."""
        return self._run(_resume_queue(name, why, by))

    async def aresume_queue(
        self, name: str, *, why: str | None = None, by: str | None = None
    ) -> bool:
        """Resume a queue; return whether it was paused. Raises as `resume_queue`."""
        return await self._arun(_resume_queue(name, why, by))

    def pause_all(
        self,
        *,
        until: Duration | datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Pause:
        """Pause everything: no claim that begins after the return takes a job of any queue, and no schedule ticks. Arguments as of `pause_queue`.
        Raises UsageError."""
        return self._run(_pause_all(until, why, by))

    async def apause_all(
        self,
        *,
        until: Duration | datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Pause:
        """Pause everything. Raises as `pause_all`."""
        return await self._arun(_pause_all(until, why, by))

    def resume_all(self, *, why: str | None = None, by: str | None = None) -> bool:
        """End a pause of everything; return whether there was one. Queues that were paused by name stay paused. Raises UsageError."""
        return self._run(_resume_all(why, by))

    async def aresume_all(self, *, why: str | None = None, by: str | None = None) -> bool:
        """End a pause of everything; return whether there was one. Raises as `resume_all`."""
        return await self._arun(_resume_all(why, by))

    def resume_copy(self, *, why: str | None = None, by: str | None = None) -> bool:
        """Let a restored copy do the work of its jobs from now on; return whether it was one. Raises UsageError."""
        return self._run(_resume_copy(why, by))

    async def aresume_copy(self, *, why: str | None = None, by: str | None = None) -> bool:
        """Let a restored copy do the work of its jobs from now on; return whether it was one. Raises as `resume_copy`."""
        return await self._arun(_resume_copy(why, by))

    def pauses(self) -> list[Pause]:
        """List what is paused at present; a pause of everything comes first, with None as its queue."""
        return self._run(ops.pauses())

    async def apauses(self) -> list[Pause]:
        """List what is paused at present; a pause of everything comes first, with None as its queue."""
        return await self._arun(ops.pauses())


def _pause_queue(
    name: str, until: Duration | datetime | None, why: str | None, by: str | None
) -> Operation[Pause]:
    return (
        yield from ops.pause_queue(
            check_queue(name, "a queue's name"), checked_until(until), reason(why), who(by)
        )
    )


def _resume_queue(name: str, why: str | None, by: str | None) -> Operation[bool]:
    return (yield from ops.resume_queue(check_queue(name, "a queue's name"), reason(why), who(by)))


def _pause_all(
    until: Duration | datetime | None, why: str | None, by: str | None
) -> Operation[Pause]:
    return (yield from ops.pause_all(checked_until(until), reason(why), who(by)))


def _resume_all(why: str | None, by: str | None) -> Operation[bool]:
    return (yield from ops.resume_all(reason(why), who(by)))


def _resume_copy(why: str | None, by: str | None) -> Operation[bool]:
    return (yield from ops.resume_copy(reason(why), who(by)))


def checked_until(given: object) -> Until:
    """When a pause ends, as it was given: a duration, an aware instant, the text of either, or None. Raises UsageError."""
    if given is None:
        return Until()
    if isinstance(given, str) and (instant := _instant(given)) is not None:
        given = instant
    if isinstance(given, datetime):
        return Until(at=check_aware(given, "until"))
    return Until(for_s=seconds(given, name="until", least=PAUSE_S_MIN))  # type: ignore[arg-type]  # anything else is refused there


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.utcoffset() is None:
        raise UsageError(
            f'until {text!r} names no time zone: write it as in "2026-11-21T18:00+01:00", or a duration such as "2h"'
        )
    return found
