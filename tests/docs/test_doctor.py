"""doctor.md, doctor-checks.md, outgrown.md and monitoring.md are held against the checks, and their
blocks are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rota.observe.doctor import CHECKS, Thresholds
from rota.observe.doctor.checks import UNCOUNTED_MAX
from tests.docs.reader import read_page
from tests.support.cli import SHOP, CommandLine
from tests.support.rules import rule

PAGE, TABLE = read_page("doctor.md"), read_page("doctor-checks.md")
OUTGROWN, MONITORING = read_page("outgrown.md"), read_page("monitoring.md")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE + MONITORING, re.MULTILINE | re.DOTALL)
SIGNS = (
    "contention",
    "order",
    "busy-groups",
    "fast-limits",
    "fan-out",
    "teams",
    "replay",
    "streaming",
)


def rows() -> dict[str, str]:
    """The lines of the table of checks."""
    return dict(re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", TABLE, re.MULTILINE))


@rule("M3")
def test_each_check_has_its_line_and_each_limit_is_the_one_that_holds() -> None:
    assert list(rows()) == [check.name for check in CHECKS]
    assert f"runs {len(CHECKS)} checks" in PAGE
    thresholds = Thresholds()
    for name, figure, limit in [
        ("connection", "50 ms", thresholds.round_trip_s == 0.05),
        ("clock", "5 s", thresholds.skew_s == 5),
        ("snapshot", "10 min", thresholds.snapshot_s == (600, 3600)),
        ("snapshot", "20 M", thresholds.snapshot_xids == (1_000_000, 20_000_000)),
        (
            "vacuum",
            "50,000 and half",
            (thresholds.dead_rows, thresholds.dead_share) == (50_000, 0.5),
        ),
        ("partitions", "next 6", thresholds.partition_days == (6, 1)),
        ("connections", "80 % are used | 95 %", thresholds.connections_share == (0.8, 0.95)),
        ("workers", "2 min", thresholds.alone_s == 120),
        ("oldest", "5 min | 1 h", thresholds.due_s == (300, 3600)),
        ("concurrency", "10 min", thresholds.cap_s == 600),
        ("limits", "1 h from now", thresholds.backlog_s == 3600),
        ("breakers", "15 min", thresholds.open_s == 900),
        ("contention", "a fifth", thresholds.waiting_share == 0.2),
        ("contention", "more than 12 workers", thresholds.workers == 12),
        ("order", "a minute", thresholds.single_s == 60),
        ("busy-groups", "a thousand due jobs", thresholds.lane_jobs == 1_000),
        ("busy-groups", "for a minute", thresholds.lane_s == 60),
        ("fast-limits", "4,000 starts", thresholds.limit_rate == 4_000),
        ("fan-out", "a million", thresholds.live_jobs == 1_000_000),
        ("fan-out", "100,000 changes", thresholds.uncounted == 100_000 == UNCOUNTED_MAX),
        ("teams", "three groups", thresholds.teams == 3),
        ("replay", "100 GB", thresholds.history_bytes == 100 * 1024**3),
        ("streaming", "200 running jobs", thresholds.reporting == 200),
        ("streaming", "ten times", thresholds.updates_a_job == 10),
    ]:
        assert figure in rows()[name] and limit, (name, figure)


@rule("M3")
def test_each_sign_of_outgrowing_it_has_a_figure_and_the_check_that_shows_it() -> None:
    _, *signs = OUTGROWN.partition("## Signs")[2].split("\n### ")
    said = [re.search(r"(.*)^- `([a-z-]+)`: .*^- Instead: ", one, re.M | re.S) for one in signs]
    assert [found and found[2] for found in said] == list(SIGNS)
    assert all(found and re.search(r"\d", found[1]) for found in said)


@pytest.mark.system
def test_the_commands_of_the_page_work(database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    for line in "".join(text for _, text in BLOCKS).splitlines():
        ran = rota(*line.split("  #")[0].split()[1:])
        assert ran.status in (0, 1) and ran.out, ran


def test_no_block_of_the_page_goes_untried() -> None:
    assert [language for language, _ in BLOCKS] == ["sh", "sh"]
    assert (PAGE + MONITORING).count("```") == 2 * len(BLOCKS)
