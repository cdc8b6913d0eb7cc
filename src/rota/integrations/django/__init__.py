"""Rota in a Django project: put "rota.integrations.django" into INSTALLED_APPS.

`app` is the App of the project, made at its first use with the options of the setting ROTA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from rota.integrations.django.connections import check_connections

if TYPE_CHECKING:
    from rota.integrations.django.backend import RotaBackend
    from rota.integrations.django.django_app import DjangoApp

    app: DjangoApp

__all__ = ["RotaBackend", "app", "check_connections"]


def __getattr__(name: str) -> Any:
    """Make on first use what needs Django's settings."""
    if name == "app":
        return import_string("rota.integrations.django.django_app.find_app")()
    if name == "RotaBackend":
        return import_string("rota.integrations.django.backend.RotaBackend")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
