"""The bus that hands events to listeners and to the log."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from rota.model.failure import escape
from rota.observe.events.event import Event

logger = logging.getLogger("rota")

E = TypeVar("E", bound=Event)


class Bus:
    """Hands each event to the log and to the listeners of its class or a class above it.

    An error in a listener is logged and stays there.
    """

    def __init__(self) -> None:
        self._listeners: dict[type[Event], list[Callable[[Any], object]]] = defaultdict(list)

    def on(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Call `listener(event)` for each event of that class.

        It is called in the thread and loop of the event, and must return quickly.
        """
        self._listeners[kind].append(listener)

    def wants(self, kind: type[Event]) -> bool:
        """Return whether the log or a listener takes such an event; callers that emit many ask
        first."""
        return logger.isEnabledFor(kind.level) or any(
            base in self._listeners for base in kind.__mro__
        )

    def emit(self, event: Event) -> None:
        """Log the event and call its listeners."""
        level = event.level_now
        if logger.isEnabledFor(level):  # a text costs more than the event
            logger.log(level, "%s", escape(event.text()), extra={"rota_event": event})
        for base in type(event).__mro__:
            for listener in self._listeners.get(base, ()):
                try:
                    listener(event)
                except (Exception, SystemExit):
                    logger.exception(
                        "a listener for %s failed; the job is not affected", type(event).__name__
                    )
