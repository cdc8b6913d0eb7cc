"""Bisection of a refused batch: finds the items that the database refuses, and writes the others.

A statement writes all of a batch or nothing. If one row may be at fault, the batch is halved until
the row is alone: one bad row among a thousand costs twenty statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Generic, TypeVar

import msgspec

from rota.store.driver import Operation
from rota.store.errors import RowLocked, RowRefused, is_of_row

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Refusals = dict[int, str]
"""The database's error for each job that it refuses."""
Split = tuple[Sequence[Item], Sequence[Item]]

WAIT_S = 20.0
"""Longest bisection, in seconds, while statements wait or take too long: each costs its timeout."""


class Isolated(msgspec.Struct, Generic[Item, Answer]):
    """The result for a batch. Each item is in one answered statement, or in one list."""

    answers: list[Answer] = []
    """An answer for each statement that was not refused."""
    refused: list[tuple[Item, str]] = []
    """Each item that the database refuses, with its error."""
    fit: list[Item] = []
    """Refused items whose values are not at fault: a right is missing, or a lock is held."""
    locked: list[Item] = []
    """Items that another transaction has locked; only with `split_locked`."""

    def refuse_or_halve(
        self,
        part: Sequence[Item],
        error: RowRefused | RowLocked,
        *,
        is_late: bool = False,
    ) -> list[Sequence[Item]]:
        """Note the refusal of a single item, or of any part when late; otherwise halve the part."""
        if len(part) > 1 and not is_late:
            return _halve(part)
        others = f"this one, or one of the {len(part) - 1} after it that were left with it"
        says = error.summary if len(part) == 1 else f"{error.summary} ({others})"
        self.refused.append((part[0], says))
        if not is_of_row(error):
            self.fit.append(part[0])
        return []


def isolate(
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], Operation[Answer]],
    *,
    tried: RowRefused | RowLocked | None = None,
    waits_until: float | None = None,
    split_locked: Callable[[Sequence[Item]], Operation[Split[Item]]] | None = None,
) -> Operation[Isolated[Item, Answer]]:
    """Write all items; if an item may be at fault, write each half, down to single items.

    Run it in autocommit: a refused statement must not undo the others. A statement that waited or
    took too long raises, unless a parameter says what to do.

    Args:
        tried: the error of a statement that tried all items together already.
        waits_until: also halve a part that waits, until this monotonic time. After that the first
            item of a part is named for all of it, and the others stay as they are.
        split_locked: splits items into free items and items that another transaction has locked. A
            part that waits continues with the free items; if there are none, it raises.
    """
    isolated: Isolated[Item, Answer] = Isolated()
    parts, error = [items], tried
    while parts:
        part = parts.pop()
        if part and error is None:
            try:
                isolated.answers.append((yield from write(part)))
            except (RowRefused, RowLocked) as met:
                error = met
        if error is None:
            continue
        if isinstance(error, RowRefused):
            parts += isolated.refuse_or_halve(part, error)
        elif split_locked is not None:
            free, locked = yield from split_locked(part)
            isolated.locked += locked
            if not locked and len(part) > 1:
                raise error
            parts += [free] if locked else isolated.refuse_or_halve(part, error)
        elif waits_until is None:
            raise error
        else:
            is_late = error is not tried and monotonic() > waits_until
            parts += isolated.refuse_or_halve(part, error, is_late=is_late)
        error = None
    return isolated


def _halve(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Return both halves, the first half last, because the caller pops from the end."""
    half = len(items) // 2
    return [items[half:], items[:half]]
