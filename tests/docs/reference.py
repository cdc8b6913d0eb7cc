"""What the pages of docs/reference and docs/tutorial suppose, and what is true after them."""

from __future__ import annotations

import importlib
import re
import sys
from contextlib import suppress
from typing import Any

import psycopg

import rota
from rota.testing import Harness
from tests.docs.reader import ROOT, Reader
from tests.docs.supposed import follows


@follows("1-first-job.md")
def begin_the_tutorial(reader: Reader) -> None:
    reader.set("ROTA_DATABASE_URL", None)
    reader.environment["COLUMNS"] = "80"  # what the chapter shows


@follows("agents.md", is_nightly=True)
def break_the_rules(reader: Reader) -> None:
    """What the page calls wrong goes wrong as it says, and what it calls right does not."""
    rules: list[str] = []
    reader.languages["md"] = rules.append
    reader.ask("create table orders (id bigint generated always as identity)")
    reader.follow_to("## Test on a database")
    told = {}
    for name in ("wrong", "right"):
        sys.modules.pop("shop", None)  # each declares its jobs in a shop of its own
        told[name] = try_code(reader, importlib.import_module(name))
    assert told == {"wrong": [1, 0, 2, "succeeded"], "right": [0, 1, 1, "failed"]}
    reader.follow_rest()
    assert "1 passed" in reader.type("pytest test_shop.py")
    reader.type("rota check --types --app shop:app")
    [page] = re.findall(r"docs/\S+\.md", rules[0])
    assert (ROOT / page).exists()
    calls = re.findall(r"`(?:await )?job\.(?:using\(connection\)\.)?(\w+)\(", rules[0])
    assert calls and all(hasattr(rota.JobType, name) for name in calls)


def try_code(reader: Reader, module: Any) -> list[object]:
    """How many jobs an order that is rolled back leaves, and an order that is given as it is; how
    often two attempts charge; how an import that fails ends."""

    def count() -> int:
        jobs = reader.ask("delete from rota.job returning id")
        return len(jobs)

    count()
    with psycopg.connect(reader.url) as own, own.transaction(force_rollback=True):
        module.place_order(own)
    told: list[object] = [count()]
    with suppress(rota.errors.PayloadError):
        module.send_for(module.Order())
    told.append(count())
    charge = getattr(module, "charge_twice", None) or module.charge_once
    with Harness(module.app, url=reader.url) as harness:
        [job] = harness.app.enqueue_many([charge.new(17)])
        for _ in range(2):
            assert harness.perform(job.id).status is rota.Status.FAILED
        imported = harness.perform(module.import_prices.new("https://x"))
    return [*told, len(module.charged), str(imported.status)]
