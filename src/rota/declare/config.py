"""Every setting, with its unit and default."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from rota.errors import ConfigurationError, UsageError
from rota.model.bounds import check_integer, check_queue

SLOTS = 10
"""Most jobs that a worker runs at once over all queues without slots of their own."""
SLOTS_MAX = 10_000
URGENT_SHARE = 5
"""One slot in this many is for jobs with a priority above 0, unless a setting says otherwise."""
PROCESSES_MAX = 64
"""Most worker processes of one `rota work`."""
HEALTH_PORT_MAX = 65_535
Queues: TypeAlias = Mapping[str, int | None] | Iterable[str]
"""The queues to serve: slots by queue, or names. None: the queue shares the other slots."""


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one worker process."""

    queues: dict[str, int | None] | None = None
    """Slots by queue; None: the queue shares `slots`. In place of the mapping, None: every queue of
    the App's types, and `default`."""
    slots: int = SLOTS
    """Most jobs at once over all queues without slots of their own."""
    urgent_slots: int | None = None
    """Slots only for jobs with a priority above 0, per queue with its own slots or per shared
    slots; None: one in five, at least one of two."""
    drain: bool = False
    """Whether the worker stops when nothing is due any more."""
    drain_for_s: float | None = None
    """Seconds after which a drain stops claiming; None: no limit."""
    grace_s: float = 30.0
    """Seconds for running handlers after a stop request, before their jobs go back."""
    poll_s: float = 0.9
    """The longest pause between two claims of an idle worker, with or without a notification."""
    poll_least_s: float = 0.004
    """The first pause when no job is due; each next pause is twice as long, up to `poll_s`."""
    listening_poll_s: float = 4.0
    """The longest pause of an idle worker that is woken for new jobs. One of several such workers
    looks twice as often for what no wake-up tells, and wakes the rest."""
    alert_url: str | None = None
    """Where alerts are posted; None: nowhere."""
    ping_url: str | None = None
    """URL requested after each good pass of upkeep, and by the App after a drain; None: none."""
    stop_after_s: float | None = None
    """Stop after this many seconds, with the grace period; None: never."""
    asks_limits: bool = True
    """Whether rate limits and breakers count: not in a test or for a job that a person picked."""
    buffer_s: float = 1.0
    """Seconds after which a claimed job that waits for a slot goes back to other workers."""

    @classmethod
    def make(
        cls, queues: Queues | None, concurrency: int, reserved: int | None, **others: Any
    ) -> WorkerConfig:
        """Return the settings that code gives. Raises UsageError, ConfigurationError."""
        named = read_queues(queues)
        urgent_slots = find_urgent_slots(reserved, named, concurrency)
        return cls(queues=named, slots=concurrency, urgent_slots=urgent_slots, **others)

    def __post_init__(self) -> None:
        for queue, slots in (self.queues or {}).items():
            check_queue(queue, "a queue's name")
            if slots is not None:
                check_integer(slots, f"the slots of queue {queue!r}", 1, SLOTS_MAX)
        check_integer(self.slots, "concurrency", 1, SLOTS_MAX)
        if self.queues is not None and not self.queues:
            raise UsageError(
                "queues is empty: name at least one queue, or omit it to serve all queues of the "
                "App's types"
            )
        if self.urgent_slots is not None:
            check_urgent_slots(self.urgent_slots, self.queues, self.slots, "reserved")
        if self.grace_s < 0:
            raise UsageError(f"grace must not be negative: {self.grace_s:g} s")

    def count_urgent_slots(self, slots: int) -> int:
        """Return how many of these slots only jobs with a priority above 0 may take."""
        if self.urgent_slots is not None:
            return self.urgent_slots
        return max(slots // URGENT_SHARE, 1) if slots > 1 else 0


def check_url(url: str, name: str) -> str:
    """Return the URL. Raises ConfigurationError if it cannot be called; `name` is its option."""
    try:
        parts = urlsplit(url)
        is_fit = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_fit = is_fit and parts.username is None  # urllib does not send it
    except ValueError:
        is_fit = False
    if not (is_fit and url.isascii() and url.isprintable() and " " not in url):
        raise ConfigurationError(
            f"{name} must be a URL such as https://host/path, without a user or password (a secret "
            "belongs into the path); this URL cannot be called, and it is not shown"
        )
    return url


def read_queues(given: Queues | None) -> dict[str, int | None] | None:
    """Return the slots by queue; None for a queue that shares them. Raises UsageError."""
    if given is None or isinstance(given, Mapping):
        return None if given is None else dict(given)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(
            "queues must be a list of names, as in ['mail'], or slots by name, as in {'mail': 4}, "
            f"not {given!r}"
        )
    return dict.fromkeys(given)


def find_urgent_slots(
    given: int | None, queues: Mapping[str, int | None] | None, slots: int
) -> int | None:
    """Return the slots for urgent jobs from code, or else from the environment; None: neither.
    Raises ConfigurationError if the environment has no number, or leaves no slot for other jobs."""
    text = os.environ.get("ROTA_RESERVED") if given is None else None
    if not text:
        return given
    try:
        found = int(text) if text.isdecimal() else text
        check_urgent_slots(found, queues, slots, "ROTA_RESERVED")
    except UsageError as error:
        raise ConfigurationError(str(error)) from None
    return int(found)


def check_urgent_slots(
    urgent_slots: Any, queues: Mapping[str, int | None] | None, slots: int, name: str
) -> None:
    """Raise UsageError unless each queue with slots of its own keeps a slot for other jobs."""
    check_integer(urgent_slots, name, 0, SLOTS_MAX - 1)
    groups = {queue: own for queue, own in (queues or {}).items() if own is not None}
    if not queues or None in queues.values():
        groups[""] = slots
    queue, least = min(groups.items(), key=lambda item: item[1])
    if urgent_slots >= least:
        of_queue = f" of queue {queue!r}" if queue else ""
        raise UsageError(
            f"{name} must be less than the slots{of_queue}, not {urgent_slots} of {least}: "
            "otherwise no job with priority 0 or less could start"
        )
