"""What pages quote of the benchmark is what the committed runs say."""

from __future__ import annotations

import json
import re

from bench import page
from tests.docs.reader import ROOT


def test_the_page_of_benchmarks_is_what_the_runs_say() -> None:
    files = sorted(page.RESULTS.glob("*.json"))
    runs = [json.loads(file.read_text("utf-8")) for file in files]
    assert page.PAGE.read_text("utf-8") == page.write(runs)


def test_the_readme_quotes_the_drain_of_the_first_run() -> None:
    run = json.loads(min(page.RESULTS.glob("*.json")).read_text("utf-8"))
    drains = {one["name"]: one["value"] for one in run["figures"] if one["part"] == "drain"}
    quoted = re.search(
        r"about ([\d,]+) no-op jobs a second\. On the same machine this is ([\d.]+)\s"
        r"times as many as graphile-worker",
        (ROOT / "README.md").read_text("utf-8"),
    )
    assert quoted is not None
    assert quoted[1] == f"{round(drains['Rota, no-op jobs'], -3):,.0f}"
    assert quoted[2] == f"{drains['Rota, × graphile-worker']:.1f}"
