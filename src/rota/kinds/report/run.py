"""A requested report, as it was when it was read."""

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
    """The file of a report is gone, or not ready."""


@dataclass(frozen=True)
class ReportRun:
    """A requested report, as it was when it was read."""

    id: int
    name: str
    params: dict[str, Any]
    status: Status
    pages_done: int | None
    """None: the pages are not found yet."""
    pages: int | None
    rows: int | None
    file: str | None
    """Name of the file in the store."""
    size: int | None
    """Bytes of the file."""
    checksum: str | None
    """SHA-256 of the file, in hexadecimal digits."""
    asked_by: str | None
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    """When the file is deleted."""
    error: str | None
    """Error of the dead job."""
    dead_job: int | None
    """Id of the dead job: retry this job, and the report goes on."""
    batch: int | None
    """The batch of its pages."""
    job: int
    """The job that found its pages, or joins them."""
    _reports: Reports = field(repr=False, compare=False)

    @property
    def progress(self) -> str:
        """Return the progress for people: `processing 40 of 100`, `ready`."""
        if self.status == "running":
            return f"processing {self.pages_done} of {self.pages}"
        return f"failed: {self.error}" if self.status == "failed" else self.status

    def open(self) -> IO[bytes]:
        """Open the file to read it.

        Raises:
                    FileGone: the file is not ready, or gone.
        """
        return self._reports._open(self)

    def refresh(self) -> ReportRun:
        """Return the run as it is now. Raises FileGone: no longer kept."""
        return self._reports.get(self.id)

    def _asdict(self) -> dict[str, Any]:
        return {**self.to_dict(), "params": json.dumps(self.params)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: value for name, value in vars(self).items() if name != "_reports"}
