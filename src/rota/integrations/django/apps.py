"""What Django does with Rota when it starts."""

from __future__ import annotations

import importlib

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from rota.integrations.django.connections import use_names_of_parent
from rota.integrations.django.schema import declare

PATH = "rota.integrations.django.RotaBackend"
"""The name of the backend in TASKS."""


class RotaConfig(AppConfig):
    """Rota as an app of a Django project."""

    name = "rota.integrations.django"
    label = "rota"
    verbose_name = "Rota"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import `jobs.py` of each installed app, and `tasks.py` if Rota runs Django's tasks, so
        that workers know what is declared there."""
        use_names_of_parent()
        importlib.import_module(f"{self.name}.checks")
        autodiscover_modules("jobs")
        if any(backend["BACKEND"] == PATH for backend in getattr(settings, "TASKS", {}).values()):
            autodiscover_modules("tasks")
        post_migrate.connect(declare, sender=self)
