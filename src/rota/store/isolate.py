"""One bisection of a refused batch: which items the database refuses, while the others are written.

A statement writes all of a batch or nothing. Where one row may be at fault, the batch is halved
until the row stands alone: one bad row among a thousand costs twenty statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Generic, TypeVar

from rota.store.driver import Operation
from rota.store.errors import RowLocked, RowRefused

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Refusals = dict[int, str]
"""What the database says of each job that it refuses."""
Split = tuple[Sequence[Item], Sequence[Item]]

WAIT_S = 20.0
"""How long a bisection goes on when statements wait or take too long: each costs its timeout."""


@dataclass(slots=True)
class Isolated(Generic[Item, Answer]):
    """What became of a batch. Each item is in one statement that was answered, or in one list."""

    answers: list[Answer] = field(default_factory=list)
    """One for each statement that was not refused."""
    refused: list[tuple[Item, str]] = field(default_factory=list)
    """Each item that the database refuses, and what it says."""
    locked: list[Item] = field(default_factory=list)
    """Items that another transaction has locked; only with `split_locked`."""

    def refuse_or_halve(
        self,
        part: Sequence[Item],
        error: RowRefused | RowLocked,
        *,
        is_late: bool = False,
    ) -> list[Sequence[Item]]:
        """Note the refusal of a part of one item, or of any when it is late; else halve it."""
        if len(part) > 1 and not is_late:
            return _halve(part)
        others = f"this one, or one of the {len(part) - 1} after it that were left with it"
        says = error.summary if len(part) == 1 else f"{error.summary} ({others})"
        self.refused.append((part[0], says))
        return []


def isolate(
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], Operation[Answer]],
    *,
    is_tried: bool = False,
    waits_until: float | None = None,
    split_locked: Callable[[Sequence[Item]], Operation[Split[Item]]] | None = None,
) -> Operation[Isolated[Item, Answer]]:
    """Write all items; where one may be at fault, each half, and so on down to the one.

    Run it in autocommit: a refused statement must not take the others with it. A statement that
    waited or took too long raises, unless a parameter says what to do.

    Args:
        is_tried: all items together were refused already: begin with the halves.
        waits_until: halve also what waits, until this monotonic time. Past it the first item of
            a part is named for all of it, and the others stay as they are.
        split_locked: splits items into those that no other transaction has locked and the rest.
            What waits goes on with the first; where none is locked, it raises.
    """
    isolated: Isolated[Item, Answer] = Isolated()
    parts = _halve(items) if is_tried else [items]
    while parts:
        if not (part := parts.pop()):
            continue
        try:
            isolated.answers.append((yield from write(part)))
        except RowRefused as error:
            parts += isolated.refuse_or_halve(part, error)
        except RowLocked as error:
            if split_locked is not None:
                free, locked = yield from split_locked(part)
                isolated.locked += locked
                if not locked and len(part) > 1:
                    raise
                parts += [free] if locked else isolated.refuse_or_halve(part, error)
            elif waits_until is None:
                raise
            else:
                is_late = monotonic() > waits_until
                parts += isolated.refuse_or_halve(part, error, is_late=is_late)
    return isolated


def _halve(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Both halves, the first one last: it is taken first."""
    half = len(items) // 2
    return [items[half:], items[:half]]
