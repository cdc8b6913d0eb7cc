"""Takes samples and looks at plans, beside everything else."""

from __future__ import annotations

import threading

from chaos.soak.clock import Clock
from chaos.soak.pace import Pace
from chaos.soak.plans import Plans
from chaos.soak.samples import Sampler

PATIENCE_S = 120


class Watch:
    """A thread that samples until it is stopped, from one round to the next."""

    def __init__(self, pace: Pace, sampler: Sampler, plans: Plans, clock: Clock) -> None:
        self._pace = pace
        self._sampler = sampler
        self._plans = plans
        self._clock = clock
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._due_at_s = 0.0

    def start(self) -> None:
        """Go on."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._main, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is being done; raise the error that ended it before, if any."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            while not self._stop.wait(max(0.0, self._due_at_s - self._sampler.at_s)):
                self._due_at_s = self._sampler.at_s + self._pace.sample_s
                sample = self._sampler.take(self._clock.days)
                with self._clock.still:
                    self._plans.look(sample.at_s)
        except BaseException as error:  # noqa: BLE001 - passed on by stop
            self._failure = error
