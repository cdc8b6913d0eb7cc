"""The settings: as each backend's own page says, or the best that it knows."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

SETUP = os.environ.get("PEERS_SETUP", "defaults")
LEASE_S = os.environ.get("PEERS_LEASE")
DJ_QUEUE: dict[str, Any] = {}
if SETUP != "defaults":
    DJ_QUEUE = {"mode": "async", "workers": [{"threads": int(os.environ.get("PEERS_SLOTS") or 10)}]}
if SETUP == "successes not kept":
    DJ_QUEUE["preserve_finished_jobs"] = False
if LEASE_S:
    DJ_QUEUE |= {"process_heartbeat_interval": 2, "process_alive_threshold": float(LEASE_S)}
ROTA = {"lease": f"{LEASE_S or 120}s"}
BACKENDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rota": ("rota.integrations.django", "rota.integrations.django.RotaBackend", {}),
    "django-tasks-db": ("django_tasks_db", "django_tasks_db.DatabaseBackend", {}),
    "dj_queue": ("dj_queue", "dj_queue.backend.DjQueueBackend", DJ_QUEUE),
}
APP, PATH, OPTIONS = BACKENDS[os.environ["PEERS_BACKEND"]]
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", APP]
TASKS = {"default": {"BACKEND": PATH, "QUEUES": [], "OPTIONS": OPTIONS}}
URL = urlsplit(os.environ["PEERS_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": URL.path.removeprefix("/"),
        "HOST": URL.hostname,
        "PORT": URL.port,
        "USER": URL.username,
        "CONN_MAX_AGE": 60,
    }
}
SECRET_KEY = "for a benchmark"
USE_TZ = True
LOGGING_CONFIG = None
