"""Pages for people who look after jobs: `dashboard(app).asgi` and `.wsgi` are applications to be
mounted under any path."""

from __future__ import annotations

from rota.dashboard.access import VERBS, Access, Authorize
from rota.dashboard.site import Dashboard, dashboard

__all__ = ["VERBS", "Access", "Authorize", "Dashboard", "dashboard"]
