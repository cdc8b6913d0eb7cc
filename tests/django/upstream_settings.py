"""The settings under which Django's own tests of tasks run."""

from __future__ import annotations

from tests.django import settings

DATABASES, SECRET_KEY = settings.DATABASES, settings.SECRET_KEY
INSTALLED_APPS = ["rota.integrations.django", "tasks"]
TASKS = {
    "default": {
        "BACKEND": "rota.integrations.django.RotaBackend",
        "QUEUES": [],
        "OPTIONS": {"max_attempts": 1},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
