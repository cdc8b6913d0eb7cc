"""A soak of seconds, one of minutes, and what its report goes by."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.soak import verdict
from chaos.soak.growth import FEWEST, Bound, fit
from chaos.soak.pace import Pace
from chaos.soak.plans import Plans
from chaos.soak.run import Asked, Soak
from chaos.soak.samples import Sampler
from tests.support.rules import rule

ROOT = Path(__file__).parents[2]
RUN_S, MOST_S = 20, 280
"""Most of them are the patience of a run on a machine that others use too."""
LONG_S, LONG_MOST_S = 240, 900
BEYOND = "Beyond the bounds"


@contextmanager
def soaking(seconds: float, report: Path) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        *("-m", "chaos.soak"),
        *("--hours", str(seconds / 3600)),
        *("--report", str(report)),
        *("--keep", str(report.parent / "logs")),
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def read(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.with_name(report.name + ".json").read_text())
    return found


def hold_together(found: dict[str, Any]) -> None:
    """What must be so in every report."""
    samples = found["samples"]
    assert [one["jobs"] for one in samples] == sorted(one["jobs"] for one in samples)
    assert samples[-1]["jobs"] == found["found"]["jobs"]
    assert sum(one["at_rest"] for one in samples) == len(found["rounds"])
    for sample in samples:
        assert {name for name, *_ in sample["workers"]} >= {"worker of 1", "worker of 2"}
        assert {"job", "job_ready", "job_history", "idempotency"} <= set(sample["relations"])
    lone = [row for one in samples for row in one["workers"] if row[0] == "worker of 1"]
    assert any(blocks for *_, blocks in lone), "no worker has said what Python holds"
    assert samples[-1]["wal_mib"] > samples[0]["wal_mib"]
    assert found["days"] == pytest.approx(samples[-1]["days"])
    assert {"claim: job_claim", "finish: job_finish"} <= {
        statement.partition(",")[0] for statement in found["plans"]["seen"]
    }
    ended = found["found"]["figures"]
    assert ended["jobs"] == sum(ended[f"ended {how}"] for how in ("succeeded", "dead", "cancelled"))


@pytest.mark.slow
@pytest.mark.system
@rule("M2", "M13", "M31")
def test_a_soak_of_twenty_seconds_loses_nothing_and_its_report_holds_together(
    tmp_path: Path,
) -> None:
    with soaking(RUN_S, tmp_path / "soak") as run:
        said, _ = run.communicate(timeout=MOST_S)
    assert run.returncode == 0, said
    found = read(tmp_path / "soak")
    hold_together(found)
    assert (found["found"]["lost"], found["found"]["twice"], found["found"]["broken"]) == (0, 0, {})
    assert found["days"] >= 1
    assert found["acts"]["SIGKILL"] >= 1
    assert not found["ended_early"]
    page = (tmp_path / "soak.md").read_text()
    assert page in said
    assert "PASS" in page
    assert BEYOND not in page


@pytest.mark.slow
@pytest.mark.system
def test_ctrl_c_ends_a_soak_with_the_report_so_far(tmp_path: Path) -> None:
    with soaking(3600, tmp_path / "soak") as run:
        assert run.stdout is not None
        assert "the workers have begun" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=MOST_S)
    assert run.returncode == 0, said
    found = read(tmp_path / "soak")
    assert found["ended_early"]
    assert "ended before its time" in (tmp_path / "soak.md").read_text()


@pytest.mark.long
@pytest.mark.system
@rule("M2", "M13")
def test_a_soak_of_minutes_keeps_its_tables_and_its_memory_within_bounds(tmp_path: Path) -> None:
    with soaking(LONG_S, tmp_path / "soak") as run:
        said, _ = run.communicate(timeout=LONG_MOST_S)
    assert run.returncode == 0, said
    found = read(tmp_path / "soak")
    hold_together(found)
    assert {"SIGKILL", "deploy", "SIGKILL to a process"} <= set(found["acts"])
    most = max(one["relations"]["job_history"][1] for one in found["samples"])
    assert most < found["found"]["jobs"] / 2, "no day of history was dropped"


def test_a_figure_that_grows_with_each_job_is_beyond_its_bound() -> None:
    line = fit([(1000.0 * n, 50 + 0.1 * n) for n in range(FEWEST)])
    assert line is not None
    assert line.per_million == pytest.approx(100)
    assert line.grew == pytest.approx(0.1 * (FEWEST - 1))
    assert not Bound(per_million=99, wavers=0.5).allows(line)
    assert Bound(per_million=101, wavers=0.5).allows(line)
    assert Bound(per_million=99, wavers=0.8).allows(line), "less than it wavers by"


def test_a_figure_that_wavers_does_not_grow() -> None:
    line = fit([(1000.0 * n, 50 + n % 2) for n in range(101)])
    assert line is not None
    assert abs(line.per_million) < 1


def test_a_run_of_ten_minutes_that_has_measured_nothing_does_not_pass() -> None:
    def complain(seconds: float, *, is_over: bool = True) -> list[str]:
        soak = Soak(
            Asked(Pace(seconds), seed=1, rate=1),
            {},
            cast(Sampler, SimpleNamespace(samples=[])),
            cast(Plans, None),
            is_over=is_over,
        )
        return verdict.find(soak).complaints

    first, *others = complain(600)
    assert first == "no job has ended: nothing was tried"
    assert [one.partition(":")[0] for one in others] == [
        "memory of workers",
        "blocks of workers",
        "memory of sessions",
        "size of tables",
        "rows of tables",
        "connections",
    ]
    assert complain(20) == [first]
    assert complain(600, is_over=False) == []


@pytest.mark.parametrize("seconds", [20, 240, 612, 3600, 7200])
def test_each_day_of_the_clock_has_two_samples_or_more(seconds: int) -> None:
    pace = Pace(seconds)
    assert pace.day_s / pace.sample_s >= 2, "a line would show at what time of the day they are"


def test_no_line_goes_through_samples_of_one_moment() -> None:
    assert fit([(5.0, 1.0), (5.0, 2.0)]) is None
    assert fit([(5.0, 1.0)]) is None


def test_the_page_says_the_bounds_of_the_verdict() -> None:
    page = (ROOT / "docs" / "project" / "soak.md").read_text()
    said = {
        what: Bound(per_million=float(million), wavers=float(run))
        for what, million, run in re.findall(
            r"^\| (.+?) \| ([\d.]+)(?: MiB)? \| ([\d.]+)(?: MiB)? \|$",
            page.replace(",", ""),
            re.MULTILINE,
        )
    }
    assert said == {
        "memory of a worker process": verdict.WORKER,
        "blocks of a worker process": verdict.BLOCKS,
        "memory of a session of the server": verdict.SESSION,
        "a table or an index": verdict.TABLE,
        "rows of a table": verdict.ROWS,
        "connections": verdict.CONNECTIONS,
    }
