"""What a worker and a process that runs its handlers send each other."""

from __future__ import annotations

import msgspec

from rota.model.job import Job
from rota.model.outcome import Failed, Failure, Outcome, Succeeded

# From the worker


class Setup(msgspec.Struct, frozen=True):
    """The first message: whose handler to run."""

    worker: str
    argv: list[str]
    log_level: int
    log_format: str | None
    """How the worker writes lines; None where the application has set that up."""
    main: dict[str, str]
    """How to import the main module, as `multiprocessing.spawn.prepare` takes it; empty when no
    handler needs it."""
    app_module: str | None
    """Where the App is, so that a handler can enqueue; None when that is not known."""
    module: str
    qualname: str
    takes_context: bool
    is_async: bool
    errors: bytes
    """`retry_on` and `fatal_on`, pickled: they load once the modules above are imported."""


class RunJob(msgspec.Struct, frozen=True):
    """Run a job. Sent only when the one before has ended."""

    job: Job
    arguments: bytes
    """Pickled, because only the handler's module makes them loadable."""


class Stop(msgspec.Struct, frozen=True):
    """The attempt should stop. The last message to it: soon after, its end or its kill."""

    why: str


# From the process


class Importing(msgspec.Struct, frozen=True):
    """The interpreter is up: from here on, what happens is the application's doing."""


class NotStarted(msgspec.Struct, frozen=True):
    """The machine does not give the process what it needs to run a handler; the process ends."""

    why: str


class Ready(msgspec.Struct, frozen=True):
    """The handler is imported."""


class NotReady(msgspec.Struct, frozen=True):
    """The handler cannot be imported; the process ends."""

    failure: Failure


class Begun(msgspec.Struct, frozen=True):
    """The process has the job: its handler may run from now on."""


class Stopped(msgspec.Struct, frozen=True):
    """The handler stopped because it was told to."""


class Progressed(msgspec.Struct, frozen=True):
    """The handler's progress."""

    job: int
    claim: int
    """Whose progress: the next job may run by the time this arrives."""
    said: str
    """As `Context.said` gives it."""


class Ended(msgspec.Struct, frozen=True):
    """The handler has ended."""

    job: int
    claim: int
    end: Succeeded | Failed | Outcome | Stopped
