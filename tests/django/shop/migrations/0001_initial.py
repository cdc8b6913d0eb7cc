"""The first tables."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """The customers."""

    initial = True
    operations = [
        migrations.CreateModel(
            "Customer",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("mails", models.IntegerField(default=0)),
            ],
        )
    ]
