"""Effects: what a handler did is known to its next attempt."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.docs.reader import read_page
from tests.support import forked
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.support.web import Web, serving
from tests.worker.conftest import StartWorker
from tests.worker.table import Connection, expire_leases, over, put, rows

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


@pytest.mark.waits
@rule("M52")
@pytest.mark.parametrize(
    ("how", "policy", "step"),
    [
        ("plain kill", "repeat", 1),
        # The first attempt is the same under each policy: these are about the ones after it.
        ("plain kill", "dead", 4),
        ("plain kill", "skip", 4),
        ("async raise", "repeat", 4),
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


KILLS = 16


@pytest.mark.waits
@rule("M52", "M33")
def test_killed_workers_send_once_under_skip_and_once_more_a_kill_under_repeat(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    chance = random.Random(7)
    with serving() as provider:
        provider.pause_s = 0.03
        worker = start_worker(database, module="tests.worker.sender")
        for kill in range(KILLS):
            put(connection, "skip" if kill % 2 else "repeat", url=provider.url)
            eventually(partial(received, provider, kill + 1), 60, what="the message arrives")
            time.sleep(chance.uniform(0, 0.04))
            worker.kill()
            expire_leases(connection)
            worker = start_worker(database, module="tests.worker.sender")
            eventually(partial(ended, connection, kill + 1), 60, what="the job ends")
        counts = Counter(asked.body.decode() for asked in provider.asked)
    assert {effect for effect, count in counts.items() if count > 1 and "skip" in effect} == set()
    assert len(counts) == KILLS
    assert max(counts.values()) <= 2  # each was killed once
    repeated = sum(count - 1 for count in counts.values())
    uncertain = rows(connection, "select count(*) from rota.effects where status = 'uncertain'")
    assert repeated > 0
    assert uncertain > [(0,)], "no worker was killed between message and result"


def received(provider: Web, count: int) -> bool:
    """Whether so many effects have sent their first message."""
    return len({asked.body for asked in provider.asked}) >= count


def ended(connection: Connection, count: int) -> bool:
    """Whether so many jobs are over."""
    return over(connection) == count
