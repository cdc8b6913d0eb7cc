"""What a worker and a process of its own (child.py) say to each other."""

from __future__ import annotations

import msgspec

from rota.model.job import Job
from rota.model.outcome import Failed, Failure, Succeeded

# What the worker says


class Setup(msgspec.Struct, frozen=True):
    """The first message: whose handler to run."""

    worker: str
    argv: list[str]
    log_level: int
    log_format: str | None
    """How the worker writes lines, where that is Rota's doing."""
    main: dict[str, str]
    """How to import the main module, as `multiprocessing.spawn.prepare` takes it; empty when nothing of it is needed."""
    app_module: str | None
    """Where the App is, so that a handler can enqueue; None when that is not known."""
    module: str
    qualname: str
    takes_context: bool
    is_async: bool
    errors: bytes
    """`retry_on` and `fatal_on`, pickled: they can be read when the modules above are imported."""


class Run(msgspec.Struct, frozen=True):
    """Run a job. Only when the one before has ended."""

    job: Job
    arguments: bytes
    """Pickled."""


class Stop(msgspec.Struct, frozen=True):
    """The attempt should stop. The last message: the process is killed, or has ended its job, soon after."""

    why: str


# What the process says


class Importing(msgspec.Struct, frozen=True):
    """It is up: what happens from here on, while the handler is imported, is the application's doing."""


class NotStarted(msgspec.Struct, frozen=True):
    """The machine does not give it what it needs to run a handler; the process ends."""

    why: str


class Ready(msgspec.Struct, frozen=True):
    """The handler is imported."""


class NotReady(msgspec.Struct, frozen=True):
    """The handler cannot be imported; the process ends."""

    failure: Failure


class Begun(msgspec.Struct, frozen=True):
    """It has the job: its handler may run from now on."""


class Said(msgspec.Struct, frozen=True):
    """An Outcome: an instance of the handler's own subclass may not survive the way."""

    outcome: str
    reason: str
    after_s: float | None = None


class Stopped(msgspec.Struct, frozen=True):
    """The handler stopped because it was told to."""


class Progressed(msgspec.Struct, frozen=True):
    """The handler has said how far it is."""

    job: int
    claim: int
    """Whose: the handler may be over by the time this is sent, and the next one may run when it is heard."""
    said: str
    """As `Context.said` gives it."""


class Ended(msgspec.Struct, frozen=True):
    """The handler is over."""

    job: int
    claim: int
    end: Succeeded | Failed | Said | Stopped
