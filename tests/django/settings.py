"""The settings of the project: its databases are those that the environment names."""

from __future__ import annotations

import os
from typing import Any

import django

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "rota.integrations.django",
    "tests.django.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def describe(name: str, **more: Any) -> dict[str, Any]:
    """Return the settings of one database."""
    engine = {"ENGINE": "django.db.backends.postgresql", "NAME": name}
    return {**engine, "TEST": {"NAME": f"test_{name}_{os.getpid()}"}, **more}


NAME = os.environ.get("PGDATABASE", "postgres")
DATABASES = {
    "default": describe(NAME),
    "other": {**describe(NAME), "TEST": {"NAME": f"test_other_{os.getpid()}"}},
}
ROTA: dict[str, Any] = {"schema": os.environ.get("SHOP_SCHEMA", "rota"), "release": "shop-7"}
MIGRATION_MODULES = {"rota": None} if "NO_MIGRATIONS" in os.environ else {}
TASKS = {
    "default": {
        "BACKEND": "rota.integrations.django.RotaBackend",
        "QUEUES": ["default", "mail", "bulk"],
        "OPTIONS": {"max_attempts": 3},
    }
}
ROOT_URLCONF = "tests.django.shop.urls"
SECRET_KEY = "for a test"
ALLOWED_HOSTS = ["*"]
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "America/New_York"
if django.VERSION < (6, 0):
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
