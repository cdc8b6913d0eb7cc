"""An App that is measured, for worker processes: `telemetry_app:app`."""

from __future__ import annotations

import os
import signal

from prometheus_client import REGISTRY, Gauge

import rota
from rota.integrations import prometheus

app = rota.App(release="app-1")
prometheus.instrument(app, registry=REGISTRY)
own = Gauge("shop_open_files", "A gauge of the application's.")


@app.job("work")
def work() -> None:
    own.set(3)


@app.job("fail", max_attempts=1)
def fail() -> None:
    raise ValueError("no")


@app.job("kill", max_attempts=1, lease="1s")
def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
