"""The App of a Django project for starts outside of manage.py: ROTA_APP or `--app` is
"rota.integrations.django.setup:app", and DJANGO_SETTINGS_MODULE names the settings."""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from rota.integrations.django import app

__all__ = ["app"]
