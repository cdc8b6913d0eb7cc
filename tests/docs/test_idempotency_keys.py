"""The blocks of idempotency-keys.md work."""

from __future__ import annotations

import re

import rota
from tests.docs.reader import read_page

KEY, PENDING_KEY = re.findall(r"```python\n(.*?)```", read_page("idempotency-keys.md"), re.DOTALL)


def test_the_key_of_the_page_is_made_of_the_arguments(database: str) -> None:
    app = rota.App(database)
    exec(KEY, {"app": app})  # the page is ours
    assert app.get(1).idempotency_key == "welcome:42:short"
    app.close()


def test_the_index_job_of_the_page_has_a_key_until_it_starts() -> None:
    app = rota.Jobs()
    exec(PENDING_KEY, {"app": app, "rota": rota})  # the page is ours
    assert app.types["index"]._declaration.options.key_scope == "pending"
