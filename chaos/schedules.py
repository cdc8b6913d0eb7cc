"""The schedule of the run, and its promises."""

from __future__ import annotations

from chaos.check import Check

NAME = "each minute"

SCHEDULES = [
    Check(
        "a time of a schedule has one job",
        """
        select min(r.job) as job, r.schedule, r.scheduled_for, count(*) from rota.schedule_run r
        where r.scheduled_for is not null
        group by r.schedule, r.scheduled_for having count(*) > 1
        """,
    ),
    Check(
        "a job that a schedule enqueued exists",
        """
        select r.job, r.schedule, r.scheduled_for from rota.schedule_run r
        where r.job > (select job from chaos.floor)
          and not exists (select from chaos.job j where j.id = r.job)
        """,
    ),
]
