"""django-tasks-db: a backend of Django's tasks."""

from __future__ import annotations

from bench.peers.django_site import PACKAGES
from bench.peers.django_site.harness import DjangoTasks
from bench.peers.harness import main
from bench.peers.system import Rows, Setup, System

SYSTEM = System(
    name="django-tasks-db",
    module="django_tasks_db",
    package="django-tasks-db",
    packages=PACKAGES,
    setups=(
        Setup(name="one at a time", about="db_worker --interval 0.1", history="kept", is_lead=True),
        Setup(name="defaults", about="db_worker", history="kept", is_default=True),
    ),
    left="select count(*) from django_tasks_database_dbtaskresult where finished_at is null",
    copied=(Rows("django_tasks_database_dbtaskresult", {"id": "gen_random_uuid()"}),),
    durable="each commit",
    recovery="none",
    default_recovery="never",
    why_lost="a task that was running stays so: it has no recovery",
    why_held="a task that was running stays so: it has no recovery",
    environment="django",
    needs_rota=True,
    newest_python=True,
    settings={"PEERS_BACKEND": "django-tasks-db"},
)


class DjangoTasksDb(DjangoTasks):
    """One worker process; it runs one task after the other."""

    system = SYSTEM

    def work(self, slots: int | None) -> None:
        self.setup_django()
        options = [] if self.setup.is_default else ["--interval", "0.1"]
        self.command("db_worker", *options, "--queue-name", "*", "--no-startup-delay")


if __name__ == "__main__":
    main(DjangoTasksDb)
