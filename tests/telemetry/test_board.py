"""The board and the alert rules name metrics and labels that a scrape has."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import rota
from rota import events
from rota.integrations import prometheus
from rota.model.metric import GAUGES
from rota.model.outcome import Failure
from tests.support.rules import rule
from tests.telemetry.scrape import work

DOCS = Path(__file__).parents[2] / "docs"
BOARD: dict[str, Any] = json.loads((DOCS / "operate/prometheus/rota.grafana.json").read_text())
RULES: dict[str, Any] = yaml.safe_load((DOCS / "operate/prometheus/rota.rules.yaml").read_text())
QUERIES = [
    *(target["expr"] for panel in BOARD["panels"] for target in panel["targets"]),
    *(
        variable["query"]["query"]
        for variable in BOARD["templating"]["list"]
        if variable["type"] == "query"
    ),
    *(alert["expr"] for group in RULES["groups"] for alert in group["rules"]),
]
OF_PROMETHEUS = {"job", "instance", "le"}


@pytest.fixture
async def samples(app: rota.App) -> dict[str, set[str]]:
    """The labels of each name of a scrape of a worker to which everything has happened."""

    @app.job("mine", breaker=rota.Breaker("b"))
    def mine() -> None: ...

    registry = CollectorRegistry()
    prometheus.instrument(app, registry=registry)
    assert app._metrics is not None
    await mine.aenqueue()
    of: dict[str, Any] = {"job": 1, "job_type": "mine", "attempt": 1, "claim": 1, "worker": "w"}
    emit, failure = app._bus.emit, Failure("E", "m", "fatal", "r")
    emit(events.JobReaped(**of, status="failed"))
    emit(events.JobClaimed(**of, queue="default", waited_s=1))
    emit(events.JobDead(**of, failure=failure, ran_s=1))
    emit(events.BreakerOpened(breaker="b", key=None, for_s=1, failures=3, reason="r"))
    emit(events.DatabaseLost(service="claimer", reason="r", retry_in_s=1))
    emit(events.ScheduleDisabled(schedule="s"))
    emit(events.ScheduleRefused(schedule="s", reason="r", paused=True))
    emit(events.HandlerAbandoned(**of, abandoned=1, slots=2))
    alert: dict[str, Any] = {"rule": "r", "subject": "", "message": "m", "value": 1}
    now = datetime.now(UTC)
    emit(events.AlertFired(**alert, since=now, severity="critical", repeated=False))
    async with work(app):
        await mine.aenqueue()  # due, or running
        text = await asyncio.to_thread(app._metrics)
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    } | {name: {label} if label else set() for name, (label, _) in GAUGES.items()}


@rule("M85", "M86")
async def test_each_query_names_metrics_and_labels_of_a_scrape(
    samples: dict[str, set[str]],
) -> None:
    named = set()
    for query in QUERIES:
        names = re.findall(r"\brota_[a-z_]+", query)
        assert names, query
        named.update(names)
        known = set().union(*(samples[name] for name in names))
        labels = set(re.findall(r"([a-z_]+)\s*=~?\s*\"", query))
        for group in re.findall(r"by \(([^)]*)\)", query):
            labels |= {label.strip() for label in group.split(",")}
        assert labels <= known | OF_PROMETHEUS, query
    ours = {re.sub(r"_(bucket|count|sum)$", "_bucket", name) for name in samples}
    ours = {name for name in ours if not name.endswith("_created")}
    assert ours == {re.sub(r"_(bucket|count|sum)$", "_bucket", name) for name in named}


@rule("M85")
async def test_the_page_has_each_metric_with_its_labels(samples: dict[str, set[str]]) -> None:
    page = (DOCS / "operate/metrics.md").read_text()
    rows = re.findall(r"^\| (`rota_[^|]*)\|([^|]*)\|", page, re.MULTILINE)
    told = {
        name: set(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    seen = {
        re.sub(r"_(bucket|count|sum)$", "", name): labels - OF_PROMETHEUS
        for name, labels in samples.items()
        if not name.endswith("_created")
    }
    assert told == seen
