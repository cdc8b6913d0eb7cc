"""The base of all calls: runs store operations, sync and async, and checks common arguments."""

from __future__ import annotations

import asyncio
import getpass
import re
import socket
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from rota.declare.job_type import JobType
from rota.declare.payload import encode_untyped
from rota.errors import PayloadError, UsageError, refuse_attribute
from rota.model.bounds import (
    KEY_MAX,
    NAME_MAX,
    QUEUE_MAX,
    WHY_MAX,
    check_aware,
    check_integer,
    check_text,
)
from rota.model.failure import one_line
from rota.model.units import seconds
from rota.store.db import Database, RunOptions
from rota.store.driver import Operation

T = TypeVar("T")
Options = TypeVar("Options", bound=Mapping[str, object])

_EMPTY = re.compile(r'"(?:\\.|[^"\\])*"|(\{\}|\[\])')
"""A text of JSON, or as the group an empty object or array."""
ID_MAX = 2**63 - 1
LIST_MAX = 10_000
ERROR_MAX = 500
"""Longest error text to search for, in characters, as of stored texts."""
TEXTS_MAX = {
    "job_type": NAME_MAX,
    "queue": QUEUE_MAX,
    "key": KEY_MAX,
    "group_key": KEY_MAX,
    "error_type": NAME_MAX,
    "error": ERROR_MAX,
    "release": NAME_MAX,
}
"""Most characters of each filter that is a text."""


class JobFilters(TypedDict, total=False):
    """The filters that a search and an action on many jobs share."""

    job_type: str | None
    """Jobs of this type, by its stored name."""
    queue: str | None
    """Jobs in this queue."""
    group_key: str | None
    """Jobs of this ordered group."""
    payload: Mapping[str, Any] | None
    """Jobs whose payload contains this: `{"user_id": 42}`."""
    meta: Mapping[str, Any] | None
    """Jobs whose meta contains this."""


class Caller(ABC):
    """Runs store operations, on its own connections or on the application's."""

    _warned = False
    _joined: Any = None
    """The connection of a call that names none; None: a connection of the database."""

    @property
    @abstractmethod
    def _database(self) -> Database:
        """The database that the operations run on."""

    def _run(
        self,
        operation: Operation[T],
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> T:
        """Run an operation and wait for it. Warn once if the wait blocks a running event loop."""
        connection = self._joined if connection is None else connection
        self._warn_in_loop(connection)
        return self._database.run(operation, connection, **options)

    async def _arun(
        self,
        operation: Operation[T],
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> T:
        return await self._database.arun(operation, connection, **options)

    def _type_of(self, name: str) -> JobType[..., ..., Any] | None:
        """Return the type with this name or alias; None: this program lacks the type."""
        return None

    def _find_misspelled(self, name: str) -> str | None:
        """Return the type of this program that a name misspells, it seems; None: it has none."""
        return None

    def _declares_queue(self, name: str) -> bool:
        """Whether a type or a schedule of this program has the queue."""
        return False

    def _declare_limit(self, name: str) -> Operation[bool]:
        """Declare the rate limits of this App's code; return whether the name is one of them."""
        yield from ()
        return False

    def _warn_in_loop(self, connection: Any = None) -> None:
        if self._warned:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if _gives_way(connection):
            return
        owner, verb, level = _find_call()
        has_twin = hasattr(type(owner), f"a{verb}")
        advice = f"a{verb}()" if has_twin else f"asyncio.to_thread({verb}, …)"
        warnings.warn(
            f"{verb}() blocks the running event loop; await {advice} instead",
            RuntimeWarning,
            stacklevel=level,
        )
        self._warned = True

    def _warn_of_misspelled(self, name: str) -> None:
        """Warn of a job type that this program lacks, if it has one of almost the same name."""
        meant = self._find_misspelled(name)
        if meant is not None:
            level = _find_call()[-1]
            warnings.warn(
                f"the App declares no job type {name!r}; did you mean {meant!r}? "
                "The job waits until a worker declares it",
                RuntimeWarning,
                stacklevel=level,
            )


class Namespace:
    """A part of the client, such as `app.queues`. It runs operations as its App does."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._run = caller._run
        self._arun = caller._arun

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Explain a call of the App that this part does not have."""
            has_it = not name.startswith("_") and hasattr(type(self._caller), name)
            here = {name: f"app.{name}"} if has_it else {"list": "app.find(…)"}
            refuse_attribute(f"{type(self).__name__!r} object", name, here)


def _gives_way(connection: Any) -> bool:
    """Whether the loop runs while plain code waits, as SQLAlchemy's async engines let it."""
    dialect = getattr(getattr(connection, "bind", None) or connection, "dialect", None)
    return bool(getattr(dialect, "is_async", False))


def _find_call() -> tuple[object, str, int]:
    """Return the method that the application called, after its object, and the level of its
    line."""
    frame, called, level = sys._getframe(2), sys._getframe(2), 2
    while (
        frame.f_back is not None
        and str(frame.f_globals.get("__name__")).partition(".")[0] == "rota"
    ):
        frame, called, level = frame.f_back, frame, level + 1
    return called.f_locals.get("self"), called.f_code.co_name, level


def refuse_unknown(options: Options, known: type[Options]) -> Options:
    """Return filters unchanged. Raises UsageError for an unknown name."""
    unknown = sorted(set(options) - known.__annotations__.keys())
    if unknown:
        raise UsageError(
            f"there is no filter {unknown[0]!r}; there are {', '.join(known.__annotations__)}"
        )
    return options


def check_texts(**filters: object) -> None:
    """Raise UsageError for a filter that no job can match; None is no filter."""
    for name, value in filters.items():
        if value is not None:
            check_text(value, name, TEXTS_MAX[name])


def encode_part(value: object, name: str) -> str | None:
    """Return what a payload or a meta must contain, as JSON; None for no filter. Raises UsageError,
    also for an empty part, which every job contains."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise UsageError(
            f"{name} must be a mapping with names, as in {{'user_id': 42}}, not {value!r}"
        )
    try:
        text = encode_untyped(name, dict(value))
    except PayloadError as error:
        raise UsageError(f"{name}: {error.reason}") from None
    if any(found[1] for found in _EMPTY.finditer(text)):
        raise UsageError(f"{name}: an empty {{}} or [] matches whatever a job has there: {value!r}")
    return text


def check_id(value: object) -> int:
    """Return the id of a job. Raises UsageError for an unfit value."""
    return check_integer(value, "a job's id", 1, ID_MAX)


def parse_moment(value: object, name: str) -> datetime | timedelta | None:
    """Return an instant, or how long ago it was; None for none. Raises UsageError."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return check_aware(value, name)
    if isinstance(value, timedelta) or (
        isinstance(value, str) and any(sign.isdigit() for sign in value)
    ):
        return timedelta(seconds=seconds(value, name=name))
    raise UsageError(
        f'{name} must be an aware datetime, or how long ago, such as "2h", not {value!r}'
    )


def check_why(why: object) -> str | None:
    """Return a reason on one line of at most 500 characters; None for none. Raises UsageError."""
    if why is not None and not isinstance(why, str):
        raise UsageError(f"why must be a string, not {why!r}")
    return (one_line(why, WHY_MAX) if why else "") or None


def check_by(by: object) -> str:
    """Return who acts, on one line; defaults to `user@host` of this process. Raises UsageError."""
    if by is not None and not isinstance(by, str):
        raise UsageError(f"by must be a string, not {by!r}")
    return (one_line(by, NAME_MAX) if by else "") or one_line(
        f"{_read_user()}@{socket.gethostname()}", NAME_MAX
    )


def check_who(why: object, by: object) -> dict[str, str | None]:
    """Return the reason and the person of an action by the names of its parameters. Raises
    UsageError."""
    return {"why": check_why(why), "by": check_by(by)}


def _read_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # in a container a user may have a number and no name
        return "unknown"
