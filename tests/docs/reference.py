"""What the pages of docs/reference and docs/tutorial suppose, and what is true after them."""

from __future__ import annotations

import json
import re

import rota
from rota.testing import run_twice
from tests.docs.reader import ROOT, Reader
from tests.docs.supposed import follows


@follows("1-first-job.md")
def begin_the_tutorial(reader: Reader) -> None:
    reader.set("ROTA_DATABASE_URL", None)
    reader.environment["COLUMNS"] = "80"  # what the chapter shows


@follows("agents.md", is_nightly=True)
def follow_the_rules(reader: Reader) -> None:
    rules: list[str] = []
    settings: list[str] = []
    reader.languages |= {"md": rules.append, "json": settings.append}
    reader.ask("create table orders (id bigint generated always as identity)")
    reader.follow_rest()
    with reader.connection.transaction(force_rollback=True):
        reader.names["place_order"](reader.connection)
    assert reader.ask("select from rota.job") == []
    run_twice(reader.names["charge"].new(17))
    assert reader.names["charged"] == [17]
    assert "1 passed" in reader.type("pytest test_shop.py")
    reader.type("rota check --types --app shop:app")
    server = json.loads(settings[0])["mcpServers"]["rota"]
    assert "Usage: rota mcp" in reader.type(
        " ".join([server["command"], *server["args"], "--help"])
    )
    [page] = re.findall(r"docs/\S+\.md", rules[0])
    assert (ROOT / page).exists()
    calls = re.findall(r"`(?:await )?job\.(?:using\(connection\)\.)?(\w+)\(", rules[0])
    assert calls and all(hasattr(rota.JobType, name) for name in calls)
