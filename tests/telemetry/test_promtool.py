"""The rules and the queries of the board, as Prometheus' own tool judges them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.rules import rule
from tests.telemetry.test_board import DOCS, QUERIES, RULES

PROMTOOL = shutil.which("promtool")
FILE = DOCS / "operate/prometheus/rota.rules.yaml"

pytestmark = pytest.mark.skipif(
    PROMTOOL is None, reason="PROMTOOL IS NOT INSTALLED: no query of the board is parsed"
)

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


@rule("M85", "M86")
def test_rules_fire_when_they_should_and_say_what_to_do(tmp_path: Path) -> None:
    texts = {
        alert["alert"]: alert["annotations"]["description"] for alert in RULES["groups"][0]["rules"]
    }
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
    board = tmp_path / "board.yml"  # each query as a rule, so that it is parsed
    asked = [
        {"record": f"q{number}", "expr": query.replace("$__rate_interval", "1m")}
        for number, query in enumerate(QUERIES)
        if not query.startswith("label_values")
    ]
    board.write_text(json.dumps({"groups": [{"name": "board", "rules": asked}]}))
    for command in (
        ["check", "rules", str(FILE)],
        ["check", "rules", str(board)],
        ["test", "rules", str(file)],
    ):
        done = subprocess.run(
            [str(PROMTOOL), *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _severity(alert: str) -> str:
    of = {
        declared["alert"]: declared["labels"]["severity"]
        for declared in RULES["groups"][0]["rules"]
    }
    return str(of[alert])
