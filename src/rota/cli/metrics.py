"""`rota metrics` prints the gauges of the database."""

from __future__ import annotations

import typer

from rota.cli.output import print_json
from rota.cli.target import JsonOption, Place
from rota.model.metric import render_metrics


def metrics(place: Place, as_json: JsonOption = False) -> None:
    """Print the gauges of the database in the text format of Prometheus.

    For a setup without a permanent worker, as for the textfile collector of the node exporter.
    """
    with place.session() as opened:
        found = opened.queues.metrics()
    if as_json:
        print_json({"metrics": found})
    else:
        typer.echo(render_metrics(found), nl=False)
