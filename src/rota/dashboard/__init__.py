"""Pages for people who look after jobs: mount `dashboard(app).asgi` or `.wsgi` under any path."""

from __future__ import annotations

from rota.dashboard.access import VERBS, Access, Authorize
from rota.dashboard.site import Dashboard, dashboard

__all__ = ["VERBS", "Access", "Authorize", "Dashboard", "dashboard"]
