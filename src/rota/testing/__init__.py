"""For your tests: run jobs, look at what is enqueued, move the clock, run a handler twice.

With pytest the fixture `rota_test` is a `Harness` on a database of its own; elsewhere make it:
`Harness(app, connection=connection)`.
"""

from __future__ import annotations

from rota.testing.drained import Drained
from rota.testing.expected import ExpectedJob
from rota.testing.harness import Harness
from rota.testing.recording import RecordingContext, make_context
from rota.testing.twice import arun_twice, run_twice
from rota.worker.summary import Performed

__all__ = [
    "Drained",
    "ExpectedJob",
    "Harness",
    "Performed",
    "RecordingContext",
    "arun_twice",
    "make_context",
    "run_twice",
]
