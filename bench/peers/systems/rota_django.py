"""Rota as a backend of Django's tasks."""

from __future__ import annotations

from bench.peers.django_site import PACKAGES
from bench.peers.django_site.harness import DjangoTasks
from bench.peers.harness import main
from bench.peers.system import Rows, Setup, System

SYSTEM = System(
    name="Rota on Django",
    module="rota_django",
    packages=PACKAGES,
    setups=(
        Setup(name="one at a time", about="rota work", history="kept", is_lead=True,
              is_default=True),
    ),
    left="select count(*) from rota.job",
    copied=(Rows("rota.job", {"id": ""}),),
    durable="each commit",
    recovery="lease of 10 s, renewed by the worker",
    default_recovery="2 minutes: the lease",
    environment="django",
    needs_rota=True,
    newest_python=True,
    settings={"PEERS_BACKEND": "rota"},
)  # fmt: skip


class RotaDjango(DjangoTasks):
    """One worker process with ten threads, as it is by default."""

    system = SYSTEM

    def work(self, slots: int | None) -> None:
        self.setup_django()
        options = [] if slots is None else ["--concurrency", str(slots)]
        self.command("rota", "work", *options, "--log-level", "error")


if __name__ == "__main__":
    main(RotaDjango)
