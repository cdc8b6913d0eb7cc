"""other-databases.md: what Rota uses of PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reader import read_page

SCHEMA = Path(__file__).parents[2] / "src" / "rota" / "store" / "schema"
FEATURES = {
    "functions in PL/pgSQL": "language plpgsql",
    "`SECURITY DEFINER`": "security definer",
    "row locks: `FOR UPDATE`, `SKIP LOCKED`": "skip locked|for no key update|for update",
    "triggers": r"create (or replace )?(constraint )?trigger",
    "partitions by day": r"partition of|(at|de)tach partition|partition by",
    "`LISTEN` and `NOTIFY`": "listen|notify",
    "advisory locks": "advisory",
    "sequences": "sequence|nextval|as identity",
}


def test_the_page_counts_what_the_sql_uses() -> None:
    """About so many: a new file need not change the page."""
    texts = [file.read_text(encoding="utf-8") for file in SCHEMA.rglob("*.sql")]
    rows = re.findall(r"^\| (.+?) \| (\d+) \| ", read_page("other-databases.md"), re.MULTILINE)
    counted = {
        name: sum(re.search(pattern, text, re.IGNORECASE) is not None for text in texts)
        for name, pattern in FEATURES.items()
    }
    assert {name: int(count) for name, count in rows} == pytest.approx(counted, rel=0.1, abs=2)
    assert len(texts) == pytest.approx(400, rel=0.1)
