"""The settings: as each backend's own page says, but for the threads, which are as many as Rota's,
and for how soon a crash is noticed."""

from __future__ import annotations

import os
from typing import Any

BACKENDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rota": ("rota.integrations.django", "rota.integrations.django.RotaBackend", {}),
    "django-tasks-db": ("django_tasks_db", "django_tasks_db.DatabaseBackend", {}),
    "dj_queue": (
        "dj_queue",
        "dj_queue.backend.DjQueueBackend",
        {
            "workers": [{"threads": 10}],
            "process_heartbeat_interval": 2,
            "process_alive_threshold": 10,
        },
    ),
}
APP, PATH, OPTIONS = BACKENDS[os.environ["BACKEND"]]
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", APP, "bench.django_site"]
TASKS = {"default": {"BACKEND": PATH, "QUEUES": [], "OPTIONS": OPTIONS}}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "CONN_MAX_AGE": 60,
    }
}
ROTA = {"lease": "10s"}
SECRET_KEY = "for a benchmark"
USE_TZ = True
