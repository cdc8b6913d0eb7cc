"""A report that was asked for, as it was when it was read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Literal

import rota

if TYPE_CHECKING:
    from rota.kinds.report.reports import Reports

Status = Literal["queued", "running", "failed", "cancelled", "ready", "expired"]


class FileGone(rota.RotaError):
    """The file of a report is not there any more, or not yet."""


@dataclass(frozen=True)
class ReportRun:
    """A report that was asked for, as it was when it was read."""

    id: int
    name: str
    params: dict[str, Any]
    status: Status
    pages_done: int | None
    """None: its pages are not found yet."""
    pages: int | None
    rows: int | None
    file: str | None
    """Its name in the store."""
    size: int | None
    """Bytes of the file."""
    checksum: str | None
    """SHA-256 of the file, in hexadecimal digits."""
    asked_by: str | None
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    """From then on the file is deleted."""
    error: str | None
    """Of the job that is dead."""
    dead_job: int | None
    """Which that is: retry it, and the report goes on."""
    batch: int | None
    """The batch of its pages."""
    job: int
    """The job that found its pages, or joins them."""
    _reports: Reports = field(repr=False, compare=False)

    @property
    def progress(self) -> str:
        """How far it is, for people: `processing 40 of 100`, `ready`."""
        if self.status == "running":
            return f"processing {self.pages_done} of {self.pages}"
        return f"failed: {self.error}" if self.status == "failed" else self.status

    def open(self) -> IO[bytes]:
        """Open the file to read it.

        Raises:
            FileGone: it is not ready, or its file is gone.
        """
        return self._reports._open(self)

    def refresh(self) -> ReportRun:
        """Return it as it is now. Raises FileGone: it is not kept any more."""
        return self._reports.get(self.id)

    def _asdict(self) -> dict[str, Any]:
        return {**self.to_dict(), "params": json.dumps(self.params)}

    def to_dict(self) -> dict[str, Any]:
        """Return its fields by name."""
        return {name: one for name, one in vars(self).items() if name != "_reports"}
