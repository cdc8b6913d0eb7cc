"""What all the `Jobs` of one App declare: its job types and its schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import msgspec

from rota.declare.declaration import Declaration, make_row
from rota.declare.job_type import JobType, Sender
from rota.declare.jobs import Jobs, Lifespan
from rota.declare.load import load
from rota.declare.rate_limit import RateLimit
from rota.declare.schedule import ScheduleOptions
from rota.declare.shared import encode_limits, index_limits, refuse_disagreement, refuse_twins
from rota.declare.tables import Tables
from rota.errors import DeclarationError


class Declarations:
    """The job types and schedules of one App. Jobs can grow, so each look refuses twin names."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._registries: list[Jobs] = []

    def add(self, given: Iterable[Jobs | str]) -> None:
        """Add all Jobs or none: after an error they are free for another App. Raises
        DeclarationError for what is no Jobs, belongs to another App or has a name twice, and
        ConfigurationError as `load`."""
        if isinstance(given, str | Jobs):
            raise DeclarationError(f"App(jobs=…) takes a list, as in jobs=[…], not {given!r}")
        registries = [
            load(registry, Jobs) if isinstance(registry, str) else registry for registry in given
        ]
        for registry in registries:
            if not isinstance(registry, Jobs):
                raise DeclarationError(
                    f"App(jobs=…) takes rota.Jobs or 'module:attribute' strings, not {registry!r}"
                )
            if registry._owner not in (None, self._sender):
                raise DeclarationError(
                    "this Jobs belongs to another App already; a Jobs belongs to one App"
                )
        refuse_disagreement(_list_types([*self._registries, *registries]))
        _index_schedules([*self._registries, *registries])
        for registry in registries:
            registry._owner = self._sender
        self._registries += registries

    @property
    def lifespans(self) -> tuple[Lifespan, ...]:
        found = (registry._lifespan for registry in self._registries)
        return tuple(lifespan for lifespan in found if lifespan is not None)

    @property
    def commands(self) -> dict[str, Callable[..., Any]]:
        """The commands, by noun and verb."""
        return {
            name: command for jobs in self._registries for name, command in jobs._commands.items()
        }

    @property
    def packages(self) -> tuple[Tables, ...]:
        """The tables of the Jobs. Raises DeclarationError if two have one name."""
        found = [registry.tables for registry in self._registries if registry.tables is not None]
        names = [tables.name for tables in found]
        if len(set(names)) < len(names):
            raise DeclarationError(f"two Jobs have tables of one name: {', '.join(names)}")
        return tuple(found)

    @property
    def types(self) -> dict[str, Declaration]:
        """The job types, by name. Raises DeclarationError as `refuse_disagreement`."""
        types = _list_types(self._registries)
        refuse_disagreement(types)
        return {job_type.name: job_type for job_type in types}

    @property
    def job_types(self) -> dict[str, JobType[..., ..., Any]]:
        """The job types as `Jobs` made them, by name. Raises as `types`."""
        names = self.types
        job_types = [
            job_type for registry in self._registries for job_type in registry._types.values()
        ]
        return dict(zip(names, job_types, strict=True))

    @property
    def types_by_any_name(self) -> dict[str, Declaration]:
        """The job types, by name and by former names. Raises as `types`."""
        return {name: job_type for job_type in self.types.values() for name in job_type.names}

    def find_job_type(self, name: str) -> JobType[..., ..., Any] | None:
        """Return the job type with this name or former name; None: there is none."""
        types = self.job_types.values()
        return next((job_type for job_type in types if name in job_type._declaration.names), None)

    def find_nearest(self, name: str, likeness: float = 0.6) -> str | None:
        """Return the name of a type, former names included, that is most like this one; None: none
        is so much like it, 0 … 1."""
        return _find_nearest(name, tuple(self.types_by_any_name), likeness)

    @property
    def schedules(self) -> dict[str, ScheduleOptions]:
        """The schedules, by name. Raises DeclarationError if two share a name."""
        return _index_schedules(self._registries)

    def encode_types(self, lease_s: float) -> str:
        """Return the types as `job_type_declare` takes them, in JSON. `lease_s` is the default."""
        rows = [make_row(job_type, lease_s) for job_type in self.types.values()]
        return msgspec.json.encode(rows).decode()

    @property
    def limits(self) -> dict[str, RateLimit]:
        """The rate limits, by name. Raises as `types`."""
        return index_limits(self.types.values())

    def encode_limits(self) -> str:
        """Return the rate limits as `limits_declare` takes them, in JSON."""
        return encode_limits(self.types.values())

    def encode_schedules(self) -> str:
        """Return the schedules as `schedules_declare` takes them, in JSON."""
        rows = [schedule.make_row() for schedule in self.schedules.values()]
        return msgspec.json.encode(rows).decode()


def _list_types(registries: Iterable[Jobs]) -> list[Declaration]:
    return [
        job_type._declaration for registry in registries for job_type in registry._types.values()
    ]


def _index_schedules(registries: Iterable[Jobs]) -> dict[str, ScheduleOptions]:
    schedules = [schedule for registry in registries for schedule in registry._schedules.values()]
    refuse_twins("schedule", ((schedule.name, schedule.place) for schedule in schedules))
    return {schedule.name: schedule for schedule in schedules}


@lru_cache(1_000)  # a program enqueues the same few names again and again
def _find_nearest(name: str, known: tuple[str, ...], likeness: float) -> str | None:
    return next(iter(get_close_matches(name, known, 1, likeness)), None)
