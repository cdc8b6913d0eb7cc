"""The base of all events: something that happened in this process, with its line in the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in this process."""

    level: ClassVar[int] = logging.INFO
    """The level of its line in the log."""
    line: ClassVar[str]
    """The log line, with fields in braces. An event whose words depend on its values overrides
    `_describe`."""

    @property
    def level_now(self) -> int:
        """The level of this event's line; a class whose level depends on its values overrides
        it."""
        return self.level

    def _describe(self) -> str:
        """Say what happened, without the subject."""
        return self.line.format(**{part.name: getattr(self, part.name) for part in fields(self)})

    def text(self) -> str:
        """Return the line in the log."""
        return self._describe()
