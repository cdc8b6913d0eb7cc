"""The calls of an application, sync and async, with one file per namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec

from rota.client.actions import ActionCalls, JobActions
from rota.client.alerts import Alerts
from rota.client.batches import BatchCalls, Batches
from rota.client.both import awaitable, both
from rota.client.breakers import Breakers
from rota.client.carry import carry_meta
from rota.client.effects import Effects
from rota.client.find import FindCalls
from rota.client.groups import Groups
from rota.client.limits import Limits
from rota.client.queues import Queues
from rota.client.schedules import Schedules
from rota.declare.connection import AnyConnection
from rota.declare.job_type import NewJob
from rota.model.asks import add_asks
from rota.store import ops
from rota.store.db import Database
from rota.store.driver import Operation


class Client(BatchCalls, FindCalls, ActionCalls):
    """All calls: the frequent ones as methods, the rest in namespaces. An App is a Client.

    Each call raises UsageError for an argument that is unfit or out of range.
    """

    jobs = cached_property(JobActions)
    """Read a timeline; reschedule, discard or archive a job; act on many; read the log."""
    schedules = cached_property(Schedules)
    """Read, put, pause, resume, trigger and delete schedules."""
    queues = cached_property(Queues)
    """Read and count queues; limit, pause and resume one queue; pause and resume everything."""
    groups = cached_property(Groups)
    """Read what holds the ordered groups, and what waits in them."""
    batches = cached_property(Batches)
    """Read and cancel batches."""
    breakers = cached_property(Breakers)
    """List circuit breakers; open or close one by hand."""
    limits = cached_property(Limits)
    """Take from rate limits, list and change them."""
    effects = cached_property(Effects)
    """Find effects and steps, and resolve uncertain effects."""
    alerts = cached_property(Alerts)
    """Read alerts."""

    @both
    def _call(
        self, function: str, arguments: Mapping[str, Any], *, connection: AnyConnection | None
    ) -> Operation[list[dict[str, Any]]]:
        """Call the function that a file makes."""
        return ops.call_function(function, arguments)

    _acall = awaitable(_call)

    @contextmanager
    def _carry(self, job: NewJob | None, connection: object, /) -> Iterator[dict[str, Any]]:
        """Go around a call that enqueues such jobs; yield their meta as an argument."""
        if job is None:
            yield {}
            return
        self._check_joins([job], connection)
        with carry_meta(self._enqueue_arounds, [job]) as [carried]:
            text = add_asks(carried.options.meta_json, carried.asks_json)
            yield {"meta": None if text is None else msgspec.json.decode(text)}


def find_in_namespaces(name: str) -> dict[str, str]:
    """Return where a client has a call of this name, if only its namespaces have it."""
    calls = [
        f"app.{place}.{name}"
        for place, made in vars(Client).items()
        if isinstance(made, cached_property) and name in vars(made.func)
    ]
    return {name: " or ".join(calls)} if calls and not name.startswith("_") else {}


class DirectClient(Client):
    """A client of a database, without an App."""

    _enforces_transactional = False

    def __init__(self, database: Database) -> None:
        self._its = database
        self.schema = database.schema

    @property
    def _database(self) -> Database:
        return self._its
