"""A site of Django with one of three backends of its tasks; PEERS_BACKEND names it."""

from __future__ import annotations

PACKAGES = (
    "django>=6.0",
    "psycopg[binary,pool]>=3.2",
    "django-tasks-db",
    "dj-queue",
)
"""What the three sites share."""
