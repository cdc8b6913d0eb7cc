"""production-checklist.md: its command, and its promise of what that exits with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reader import read_page
from tests.support.cli import SHOP, CommandLine
from tests.support.rules import rule

PAGE = read_page("production-checklist.md")


@rule("M3")
@pytest.mark.system
def test_the_last_command_exits_with_1_if_a_check_warns_or_is_bad(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    [command] = re.findall(r"```sh\n(.*?)\n```", PAGE)
    counts = rota("doctor", "--json").json["counts"]
    ran = rota(*command.split()[1:])
    assert ran.status == int(counts["bad"] > 0 or counts["warn"] > 0), ran
    assert counts["bad"] > 0  # the tests' server has autovacuum off
