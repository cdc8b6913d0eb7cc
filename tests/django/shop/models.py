"""The rows of the shop."""

from __future__ import annotations

from django.db import models


class Customer(models.Model):
    """Who signed up."""

    name: models.TextField[str, str] = models.TextField()
    mails: models.IntegerField[int, int] = models.IntegerField(default=0)
