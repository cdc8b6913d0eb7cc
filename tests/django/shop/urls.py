"""The addresses of the shop."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from tests.django.shop import views

urlpatterns = [
    path("admin/jobs/", include("rota.dashboard.django")),
    path("admin/", admin.site.urls),
    path("signup/<name>", views.sign_up),
    path("ask/<name>", views.ask),
]
