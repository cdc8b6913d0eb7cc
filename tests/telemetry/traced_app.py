"""An App that is traced and reported, with a handler in a process of its own; spans are lines of
the file that SPANS names."""

from __future__ import annotations

import os
from pathlib import Path

import sentry_sdk
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import rota
from rota.integrations import otel, sentry

provider = TracerProvider()
exporter = ConsoleSpanExporter(
    out=Path(os.environ["SPANS"]).open("a"),  # noqa: SIM115 - as long as the process
    formatter=lambda span: span.to_json(indent=None) + "\n",
)
provider.add_span_processor(SimpleSpanProcessor(exporter))
sentry_sdk.init(os.environ.get("SENTRY"), default_integrations=False)
app = rota.App()
otel.instrument(app, tracer_provider=provider)
sentry.instrument(app)


@app.job("apart", process=True, max_attempts=1)
def apart(number: int) -> None:
    raise ValueError("in its own process")
