"""The blocks of without-a-worker.md are what the command prints, and work."""

from __future__ import annotations

import re
import shlex
import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml

from rota.cli import run
from rota.model.cron import latest_fires, parse
from tests.docs.reader import read_page
from tests.support.project import enter
from tests.support.rules import rule

PAGE = read_page("without-a-worker.md")
CLOCKS = read_page("daylight-saving.md")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@rule("M80")
@pytest.mark.parametrize("language", ["crontab", "ini", "yaml"])
def test_what_the_page_shows_is_what_the_command_prints(
    language: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "shop.py").write_text("import rota\n\napp = rota.App()\n")
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", "postgresql://shop:secret@db.internal/shop")
    monkeypatch.setattr(sys, "executable", "/srv/shop/.venv/bin/python")
    place = [name for name, _ in BLOCKS].index(language)
    typed, shown = BLOCKS[place - 1], BLOCKS[place][1]
    assert typed[0] == "sh"
    assert run(shlex.split(typed[1])[1:]) == 0
    printed = capsys.readouterr().out.replace(str(tmp_path), "/srv/shop")
    assert printed == shown
    if language == "yaml":
        assert yaml.safe_load(shown)["kind"] == "CronJob"


def test_no_block_of_the_page_goes_untried() -> None:
    assert [name for name, _ in BLOCKS] == [
        "sh",
        "crontab",
        "env",
        "sh",
        "ini",
        "sh",
        "yaml",
        "text",
    ]
    assert PAGE.count("```") == 2 * len(BLOCKS)


@rule("M82")
@pytest.mark.parametrize(
    ("text", "day", "shown"),
    [
        ("30 2 * * *", 28, ["02:30"]),
        ("30 2 * * *", 29, ["03:00"]),
        ("30 2 * * *", 25, ["02:30+0200"]),
        ("0,30 2 * * *", 29, ["03:00"]),
        ("*/20 2 * * *", 29, []),
        ("*/20 2 * * *", 25, ["02:00", "02:20", "02:40", "02:00+0100", "02:20", "02:40"]),
    ],
)
def test_what_is_said_about_nights_when_clocks_change_is_so(
    text: str, day: int, shown: list[str]
) -> None:
    assert f"`{text}`" in CLOCKS
    zone = ZoneInfo("Europe/Stockholm")
    start = datetime(2026, 10 if day == 25 else 3, day, tzinfo=zone)
    ticks = latest_fires(parse(text, zone.key), start, start.replace(hour=23), 99)
    assert len(ticks) == len(shown)
    for tick, expected in zip(ticks, shown, strict=True):
        assert tick.astimezone(zone).strftime("%H:%M%z").startswith(expected)
