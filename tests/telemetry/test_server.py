"""A real Prometheus server scrapes a worker, answers the board and judges the alert rules."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rota
from rota.integrations import prometheus
from tests.support.rules import rule
from tests.support.server import unused_port
from tests.support.wait import eventually
from tests.telemetry.scrape import work
from tests.telemetry.test_board import BOARD, DOCS, RULES
from tests.worker.table import Connection

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
FILE = DOCS / "operate/prometheus/rota.rules.yaml"
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: shop
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
QUIET = {"Open breakers", "Schedules", "Trouble"}
"""Panels of what has not happened in this test; the other queries have an answer."""

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        PROMETHEUS is None or PROMTOOL is None,
        reason="PROMETHEUS IS NOT INSTALLED: no query of the board is run",
    ),
]


@pytest.fixture
def scraper(tmp_path: Path, free_port: int) -> Iterator[str]:
    """The URL of a server that scrapes `free_port` each second."""
    own = unused_port()
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(rules=FILE, port=free_port))
    command = [
        str(PROMETHEUS), f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{own}",
    ]  # fmt: skip
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    yield f"http://127.0.0.1:{own}"
    process.terminate()
    process.wait(30)


def ask(url: str, path: str, **parameters: str) -> Any:
    """The data of an answer, or None while the server does not answer."""
    asked = f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
            return None
        pytest.fail(f"{path} {parameters}: {error.read().decode()}")
    except OSError:
        return None
    assert said["status"] == "success"
    return said["data"]


def query(url: str, text: str) -> list[Any]:
    """What the server answers to a query of the board."""
    text = text.replace("$__rate_interval", "1m").replace("$job", ".*")
    found = ask(url, "query", query=text)
    return found["result"] if found else []


@rule("M85", "M86")
async def test_a_real_server_answers_each_query_of_the_board_and_judges_each_rule(
    app: rota.App, connection: Connection, scraper: str, free_port: int
) -> None:
    end = asyncio.Event()

    @app.job("mine")
    async def mine() -> None:
        await end.wait()

    @app.job("bad", max_attempts=1)
    def bad() -> None:
        raise ValueError("always")

    prometheus.instrument(app, registry=CollectorRegistry())
    async with work(app, free_port):
        await mine.aenqueue()
        await bad.aenqueue()
        connection.execute("insert into rota.job (job_type) values ('of another App')")
        # A rate needs two scrapes after the first.
        ready = 'rate(rota_attempts_total{outcome="dead"}[1m]) and on () rota_dead_jobs > 0'
        await asyncio.to_thread(
            eventually, lambda: query(scraper, ready), 60, what="two scrapes of a dead job"
        )
        empty = await asyncio.to_thread(
            lambda: {
                panel["title"]
                for panel in BOARD["panels"]
                for target in panel["targets"]
                if not query(scraper, target["expr"])
            }
        )
        assert empty <= QUIET
        await asyncio.to_thread(
            eventually,
            lambda: _alerts(scraper).get("RotaJobsDead") in ("pending", "firing"),
            60,
            what="the alert on the dead job",
        )
        end.set()
        assert set(_alerts(scraper)) == {one["alert"] for one in RULES["groups"][0]["rules"]}


def _alerts(server: str) -> dict[str, str]:
    """The state of each alert rule, none of which may fail."""
    found: dict[str, str] = {}
    for group in ask(server, "rules")["groups"]:
        for one in group["rules"]:
            assert one["health"] in ("ok", "unknown"), one
            found[one["name"]] = one["state"]
    return found


SERIES = {
    "rota_dead_jobs": "0x5 3x20",
    'rota_oldest_due_job_seconds{queue="mail"}': "700x30",
    'rota_attempts_total{job_type="mail",outcome="failed"}': "0+60x30",
    'rota_attempts_total{job_type="mail",outcome="succeeded"}': "0+20x30",
    'rota_workers{state="alive"}': "2x8 0x20",
}
FIRE = {  # the minute, which has fired by then, its labels and its summary
    "RotaJobsDead": (8, {}, "3 dead jobs wait for a person."),
    "RotaJobsWaitLong": (
        8, {"queue": "mail"},
        "A job of queue mail has been due for 11m 40s.",
    ),
    "RotaAttemptsFail": (
        25, {"job_type": "mail"},
        "More than half of the attempts of mail fail.",
    ),
    "RotaNoWorker": (15, {}, "No worker is alive."),
}  # fmt: skip


@rule("M86")
def test_rules_fire_when_they_should_and_say_what_to_do(tmp_path: Path) -> None:
    texts = {one["alert"]: one["annotations"]["description"] for one in RULES["groups"][0]["rules"]}
    expected = [
        {
            "eval_time": f"{minute}m",
            "alertname": name,
            "exp_alerts": [
                {
                    "exp_labels": labels | {"severity": _severity(name)},
                    "exp_annotations": {
                        "summary": summary,
                        "description": texts[name].replace("{{ $labels.job_type }}", "mail"),
                    },
                }
            ],
        }
        for name, (minute, labels, summary) in FIRE.items()
    ]
    quiet = [{"eval_time": "4m", "alertname": name} for name in FIRE]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    test = {
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [*quiet, *expected],
    }
    file = tmp_path / "fire.yml"
    file.write_text(json.dumps({"rule_files": [str(FILE)], "tests": [test]}))  # JSON is YAML
    for command in (["check", "rules", str(FILE)], ["test", "rules", str(file)]):
        done = subprocess.run(
            [str(PROMTOOL), *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _severity(alert: str) -> str:
    of = {one["alert"]: one["labels"]["severity"] for one in RULES["groups"][0]["rules"]}
    return str(of[alert])
