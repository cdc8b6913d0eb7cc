"""Rota 0.1.0. Each release that changes the schema adds one migration with the same operation."""

from __future__ import annotations

from django.db import migrations
from django.db.migrations.state import ModelState

from rota.integrations.django.models import AttemptRow, JobRow, QueueRow, ScheduleRow
from rota.integrations.django.schema import InstallSchema

# These models make nothing in the database, so they are always those of the installed release.
STATES = [ModelState.from_model(model) for model in (JobRow, AttemptRow, ScheduleRow, QueueRow)]


class InstallRelease(migrations.Migration):
    """Makes the schema."""

    initial = True
    operations = [
        InstallSchema(),
        *(
            migrations.CreateModel(
                state.name, list(state.fields.items()), state.options, state.bases, state.managers
            )
            for state in STATES
        ),
    ]


Migration = InstallRelease  # the name that Django looks for
