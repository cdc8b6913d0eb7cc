"""One connection enqueues through the system's own calls.

Single jobs with a commit each; a row of the application and a job in one transaction, with its
commit; and 1,000 jobs in one call.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.peers.result import Measured
from bench.peers.stage import Stage
from bench.peers.system import Setup, System

NAME = "enqueue"
ROUNDS_MAX = 1
TOGETHER = 1
FORMS = {
    "single": "single",
    "transaction": "in a transaction with a row",
    "bulk": "1,000 in one call",
}


def entries(system: System) -> list[Setup]:
    return [system.lead]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    with stage.turn(system, setup) as played:
        for form, what in FORMS.items():
            speed = played.run(form, stage.scale.enqueue_s)
            note = "" if speed is not None else "it has no such call"
            yield Measured(what=what, value=speed, unit="jobs/s", better="more", note=note)
