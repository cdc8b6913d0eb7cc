"""Every setting, with its unit and default."""

from __future__ import annotations

from dataclasses import dataclass

from rota.errors import UsageError
from rota.model.bounds import check_integer, check_queue

SLOTS = 10
"""Most jobs that a worker runs at once, if its queues have no slots of their own."""
SLOTS_MAX = 10_000
PROCESSES_MAX = 64
"""Most worker processes of one `rota work`."""
HEALTH_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How one worker process works."""

    queues: dict[str, int] | None = None
    """Slots by queue; None: every queue of the App's types plus `default`, sharing `slots`."""
    slots: int = SLOTS
    """Most jobs at once over all queues. Only if `queues` is None."""
    drain: bool = False
    """Stop when nothing is due any more."""
    drain_for_s: float | None = None
    """In a drain: seconds after which it stops claiming; None: no limit."""
    grace_s: float = 30.0
    """How long running handlers may continue after a stop request, before they are stopped and
    their jobs handed back."""
    poll_s: float = 0.9
    """The longest pause between two claims of an idle worker: a job is picked up within it even
    without a notification."""
    poll_least_s: float = 0.004
    """The first pause when no job is due; it doubles up to `poll_s`."""
    alert_url: str | None = None
    """Where alerts are posted; None: nowhere."""
    ping_url: str | None = None
    """URL that is requested after each good pass of upkeep; None: none. For a drain the App
    requests it at the end."""
    stop_after_s: float | None = None
    """Stop after this many seconds, with the grace period; None: never."""
    asks_gates: bool = True
    """Whether rate limits and breakers are asked; not in a test, which would wait for them."""
    buffer_s: float = 1.0
    """A claimed job that has waited this long for a slot is handed back to other workers."""

    def __post_init__(self) -> None:
        for queue, slots in (self.queues or {}).items():
            check_queue(queue, "a queue's name")
            check_integer(slots, f"the slots of queue {queue!r}", 1, SLOTS_MAX)
        check_integer(self.slots, "slots", 1, SLOTS_MAX)
        if self.queues is not None and not self.queues:
            raise UsageError(
                "queues is empty: name at least one queue, or omit it to serve all queues of the "
                "App's types"
            )
        if self.grace_s < 0:
            raise UsageError(f"grace must not be negative: {self.grace_s:g} s")
