"""What a worker works for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from rota.declare.job_type import JobType


@dataclass(frozen=True, slots=True)
class Crew:
    """The job types by every name they have, their release, and what they share."""

    types: Mapping[str, JobType[..., ..., Any]]
    release: str
    lease_s: float
    declaration: str
    """The types as `job_type_declare` takes them, in JSON."""
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None
    module: str | None = None
    """Where the App is made; None when that is not known."""
    schedules: str = "[]"
    """Those declared in code, as `schedules_declare` takes them, in JSON."""
