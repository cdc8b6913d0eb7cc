"""One promise that the judge checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, and a SELECT of the rows that break it. The timeline of their column `job` is
    printed."""

    what: str
    select: LiteralString
