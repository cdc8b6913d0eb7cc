"""What an event is: something that happened in this process, with its line in the log."""

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
    """What the line says, its fields in braces; an event that words it by what it holds has a `describe` of its own."""

    @property
    def level_now(self) -> int:
        """The level of this one's line, where it depends on what it says."""
        return self.level

    def describe(self) -> str:
        """What happened."""
        return self.line.format(**{part.name: getattr(self, part.name) for part in fields(self)})

    def text(self) -> str:
        """The line in the log."""
        return self.describe()
