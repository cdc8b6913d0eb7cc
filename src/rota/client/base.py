"""What every part of the client stands on: running a store operation, sync and async."""

from __future__ import annotations

import asyncio
import getpass
import socket
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from rota.errors import UsageError
from rota.model.bounds import NAME_MAX, WHY_MAX, check_integer
from rota.model.failure import one_line
from rota.model.units import seconds

if TYPE_CHECKING:
    from rota.store.db import Database
    from rota.store.driver import Operation

T = TypeVar("T")
Which = TypeVar("Which", bound=Mapping[str, object])

ID_MAX = 2**63 - 1
LIST_MAX = 10_000


class Asking(ABC):
    """Asks the database, on its own connections or on the caller's."""

    _warned = False

    @property
    @abstractmethod
    def database(self) -> Database:
        """The database that is asked."""

    def _run(self, operation: Operation[T], connection: Any = None, *, atomic: bool = False) -> T:
        """Run an operation in plain code. Warns once where that blocks a running loop: there the call's twin should be awaited."""
        self._warn_in_loop()
        return self.database.run(operation, connection, atomic=atomic)

    async def _arun(
        self, operation: Operation[T], connection: Any = None, *, atomic: bool = False
    ) -> T:
        """Run an operation on the running loop."""
        return await self.database.arun(operation, connection, atomic=atomic)

    def _warn_in_loop(self) -> None:
        if self._warned:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        verb, level = _called()
        warnings.warn(
            f"{verb}() blocks the running event loop; await a{verb}() instead",
            RuntimeWarning,
            stacklevel=level,
        )
        self._warned = True


def _called() -> tuple[str, int]:
    """Which of Rota's calls was made, and how far up the stack of `_warn_in_loop` the line stands that made it: the first that is not Rota's own."""
    frame, verb, level = sys._getframe(2), "", 2
    while (
        frame.f_back is not None
        and str(frame.f_globals.get("__name__")).partition(".")[0] == "rota"
    ):
        frame, verb, level = frame.f_back, frame.f_code.co_name, level + 1
    return verb, level


def refuse_unknown(which: Which, known: type[Which]) -> Which:
    """Return filters as they were given. Raises UsageError where one is none: Python does not look at the names of an unpacked TypedDict."""
    unknown = sorted(set(which) - known.__annotations__.keys())
    if unknown:
        raise UsageError(
            f"there is no filter {unknown[0]!r}; there are {', '.join(known.__annotations__)}"
        )
    return which


def check_id(given: object) -> None:
    """Raise UsageError unless it can be the id of a job."""
    check_integer(given, "a job's id", 1, ID_MAX)


def moment(given: object, name: str) -> datetime | timedelta | None:
    """Return a point in time as given, or how long ago it was. Raises UsageError."""
    if given is None:
        return None
    if isinstance(given, datetime):
        if given.utcoffset() is None:
            raise UsageError(
                f"{name} must have a time zone: {given!r} is another instant on another machine"
            )
        return given
    if isinstance(given, timedelta) or (
        isinstance(given, str) and any(sign.isdigit() for sign in given)
    ):
        return timedelta(seconds=seconds(given, name=name))
    raise UsageError(
        f'{name} must be an aware datetime, or how long ago, such as "2h", not {given!r}'
    )


def reason(why: object) -> str | None:
    """What somebody gave as their reason, fit to be stored. Raises UsageError."""
    if why is not None and not isinstance(why, str):
        raise UsageError(f"why must be a string, not {why!r}")
    return (one_line(why, WHY_MAX) if why else "") or None


def who(by: object) -> str:
    """Who acts: what they say of themselves, on one line of at most 200 characters, else `user@host` of this process. Raises UsageError."""
    if by is not None and not isinstance(by, str):
        raise UsageError(f"by must be a string, not {by!r}")
    return (one_line(by, NAME_MAX) if by else "") or one_line(
        f"{_user()}@{socket.gethostname()}", NAME_MAX
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have a number and no name
        return "unknown"
