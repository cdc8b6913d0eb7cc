"""Reports: files of many rows, made in pages by all workers on request."""

from __future__ import annotations

from rota.kinds.report.endpoints import Endpoints
from rota.kinds.report.reports import Reports, ReportSource
from rota.kinds.report.run import FileGone, ReportRun
from rota.kinds.report.store import Directory, ObjectStore, Store

__all__ = [
    "Directory",
    "Endpoints",
    "FileGone",
    "ObjectStore",
    "ReportRun",
    "ReportSource",
    "Reports",
    "Store",
]
