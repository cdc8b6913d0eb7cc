"""Reports: files of many rows, made in pages by all workers, and asked for by a click."""

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
