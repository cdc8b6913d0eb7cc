"""Effects: what a handler did is known to its next attempt."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.docs.reader import read_page
from tests.support import forked
from tests.support.rules import rule

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
PAGE = read_page("effects.md")


def promised() -> dict[tuple[str, str], tuple[int, str]]:
    """The table of the page: what comes of an attempt that ends somewhere, by place and policy."""
    header, *lines = re.findall(r"^\| (?:the first|before the|after the).*\|$", PAGE, re.MULTILINE)
    policies = re.findall(r'"(\w+)"', header)
    table: dict[tuple[str, str], tuple[int, str]] = {}
    for line in lines:
        where, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        for policy, cell in zip(policies, cells, strict=True):
            said = re.fullmatch(r"sent (\d) times?, (\w+)", cell)
            assert said is not None, cell
            table[where, policy] = int(said[1]), said[2]
    return table


@rule("M52")
@pytest.mark.parametrize(
    ("how", "policy", "step"),
    [
        ("plain kill", "repeat", 2),
        # The first attempt is the same under each policy: this is about the ones after it.
        ("plain kill", "dead", 5),
        ("async raise", "skip", 5),
    ],
)
def test_an_attempt_that_ends_at_any_line_does_what_the_page_promises(
    database: str, tmp_path: Path, how: str, policy: str, step: int
) -> None:
    program = ["-m", "tests.worker.once", database, str(tmp_path), policy, how, str(step)]
    done = forked.run(program, env=os.environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    table = promised()
    for end in ends:
        assert (end["sent"], end["status"]) == table[end["where"], policy], end
    assert {end["where"] for end in ends} == {where for where, _ in table}
