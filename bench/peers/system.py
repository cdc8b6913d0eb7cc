"""What is said of a system: where it comes from, how it can be set up, what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Runtime = Literal["python", "node"]
Kept = Literal["postgresql", "redis"]
"""Where a system keeps its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One way to run its worker."""

    name: str
    about: str
    """The settings, as a reader would write them."""
    history: str
    """What is left of a job that succeeded."""
    is_default: bool = False
    is_lead: bool = False
    """Whether the scenarios about one job at a time are played with it: the best that the system's
    documentation knows for them."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows of a table are copied."""

    table: str
    keys: dict[str, str]
    """The columns that differ, each with its expression; `copy` is the number of the copy. Empty:
    the column's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A queue beside others. What runs it stands in the same module, or beside it in JavaScript."""

    name: str
    module: str
    """Its module in `bench.peers.systems`."""
    package: str = ""
    """The package whose version is shown; by default Rota."""
    packages: tuple[str, ...] = ()
    """What pip or npm installs."""
    setups: tuple[Setup, ...]
    durable: str
    recovery: str
    """How it finds the jobs of a worker that has died, and the settings of the crash scenarios."""
    default_recovery: str
    """When that happens by default, as its documentation or source says."""
    why_lost: str = ""
    """Why jobs of a killed worker may not run again, and where its documentation or source says so:
    said where some have not."""
    why_held: str = ""
    """The same of the jobs of a worker that stands still."""
    left: str = ""
    """A statement that counts the jobs that are not finished; with Redis a script in Lua."""
    kept: Kept = "postgresql"
    copied: tuple[Rows, ...] = ()
    """The rows of a waiting job, if a million jobs are copies of one; else they are enqueued in
    bulk."""
    recover_s: float = 0.0
    """How long it takes at least to notice a dead worker, whatever it is told."""
    starts_again: bool = False
    """Whether a killed worker finds its jobs when it is started again, and no other worker does:
    then a supervisor starts it."""
    runtime: Runtime = "python"
    environment: str = ""
    """The environment that it shares with others; by default one of its own."""
    needs_rota: bool = False
    newest_python: bool = False
    """Whether it needs Python 3.12."""
    settings: dict[str, str] = field(default_factory=dict)
    """Environment variables of its processes."""

    @property
    def place(self) -> str:
        """The name of its environment."""
        return self.environment or self.module

    def setup(self, name: str) -> Setup:
        """Return one of its setups."""
        return next(setup for setup in self.setups if setup.name == name)

    @property
    def lead(self) -> Setup:
        """The setup for scenarios about one job at a time."""
        return next(setup for setup in self.setups if setup.is_lead)
