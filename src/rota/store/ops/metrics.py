"""The gauges of the database, and which worker of all reads them."""

from __future__ import annotations

from rota.model.bounds import COUNT_MAX
from rota.model.metric import GAUGES, Metric
from rota.store.driver import Operation, Query

NAMES_MAX = 100
"""Most queues, breakers and tables: labels are bounded."""


def read_metrics() -> Operation[list[Metric]]:
    rows = yield Query("metrics_read", {"names": NAMES_MAX, "counted": COUNT_MAX})
    found: dict[str, list[Metric]] = {name: [] for name in GAUGES}
    for name, about, value in rows:
        label, _ = GAUGES[name]
        labels = {} if label is None else {label: about}
        found[name].append(Metric(name=name, labels=labels, value=value))
    return [metric for some in found.values() for metric in some]


def take_metrics(worker: str) -> Operation[bool]:
    """Return whether this worker reads the gauges: of all workers that ask, one worker does."""
    return bool((yield Query("metrics_take", {"worker": worker})))
