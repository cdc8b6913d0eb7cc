"""Breakers: what workers record, and what people read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.model.breaker import BreakerRules, EndpointHealth
from rota.model.record import Record
from rota.store.driver import Operation, Query
from rota.store.errors import RowLocked, RowRefused
from rota.store.ops.lease import Refused

BreakerPlace = tuple[str, str]
"""The name and the key of a breaker; without keys the key is ''."""


class EndpointResult(msgspec.Struct, frozen=True):
    """What ended attempts say of one endpoint: failures, or the end of one trial."""

    rules: BreakerRules
    key: str
    failed_after_s: list[float]
    """How long ago the attempt of each failure began."""
    reason: str | None
    trial: EndpointHealth | None = None
    trial_job: int | None = None
    trial_claim: int | None = None


class Recorded(msgspec.Struct, frozen=True):
    place: BreakerPlace
    wait_s: float | None
    """How long it is open; None: it is closed, or another job tries."""
    change: Literal["opened", "reopened", "closed", "untried"] | None


class BreakerRecord(Record, frozen=True):
    """A breaker, or a breaker's key: a row of the view `breakers`."""

    name: str
    """Name of the breaker."""
    key: str | None
    """None: the breaker has no keys, or this row is about all of its keys."""
    state: Literal["closed", "open", "trial"]
    """`closed`: jobs start. `open`: they wait. `trial`: one job tries, the others wait."""
    failures: int
    """How many failures count while it is closed."""
    openings: int
    """How often it opened since it was last closed."""
    open_until: datetime | None
    """When a job may try; None: once a person resets it, or it is closed."""
    opened_at: datetime | None
    """Since when it is not closed, an aware datetime; None: it is closed."""
    trial_job: int | None
    """The job that tries."""
    waiting: int
    """Jobs that wait for it, counted up to 10,000."""
    reason: str | None
    """The last failure, or why a person changed it."""
    changed_at: datetime | None
    """When it last changed, an aware datetime; None: it is closed, and no failure counts."""
    changed_by: str | None
    """None: a worker."""


def record_at_breakers(results: Sequence[EndpointResult]) -> Operation[list[Recorded] | Refused]:
    """Record what attempts say of their endpoints; Refused: the database does not take it."""
    told = msgspec.json.encode([_describe(result) for result in results]).decode()
    try:
        rows = yield Query("breaker_record", {"results": told})
    except (RowRefused, RowLocked) as error:
        return Refused(error.summary, locked=isinstance(error, RowLocked), of_row=False)
    return [Recorded((name, key), wait_s, change) for name, key, wait_s, change in rows]


def _describe(result: EndpointResult) -> dict[str, Any]:
    rules = result.rules
    return {
        "name": rules.name,
        "key": result.key,
        "failed_after_s": result.failed_after_s,
        "failures": rules.failures,
        "within_s": rules.within_s,
        "open_for_s": rules.open_for_s,
        "max_open_s": rules.max_open_s,
        "reason": result.reason,
        "trial_job": result.trial_job,
        "trial_claim": result.trial_claim,
        "trial": result.trial,
    }
