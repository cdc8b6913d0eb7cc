"""secrets.md, masks.md and erase.md: their blocks and commands do what they say."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.declare.secret import VARIABLE, make_key
from rota.model import scrub
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("secrets.md") + read_page("masks.md") + read_page("erase.md")
DECLARING, ENQUEUEING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SQL, ERASING = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
ROTATION, REVEAL, ERASURE = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
Connection = psycopg.Connection[TupleRow]


class Provider:
    """What the page charges at; it refuses, and says with what."""

    def __init__(self) -> None:
        self.charged: list[tuple[int, str]] = []

    def charge(self, user: int, token: str) -> None:
        self.charged.append((user, token))
        raise ValueError(f"card of cus_4711, {user}, refused for {token}")


@rule("M45")
def test_the_page_is_followed_from_the_first_key_to_the_second(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rota_ = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    old = rota_.ok("secrets", "new-key", "k1").out.strip()
    assert old.startswith("k1=")
    monkeypatch.setenv(VARIABLE, old)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    monkeypatch.setattr(scrub, "_patterns", {})
    provider = Provider()
    shop = ModuleType("shop_secrets")
    shop.__dict__["provider"] = provider
    exec(compile(DECLARING, "secrets.md", "exec"), shop.__dict__)  # the page is ours
    monkeypatch.setitem(sys.modules, "shop_secrets", shop)
    exec(compile(ENQUEUEING, "secrets.md", "exec"), {})
    app: rota.App = shop.__dict__["app"]
    app.drain()
    assert provider.charged == [(812, "tok-8f2e71")]
    [[message]] = connection.execute("select message from rota.attempt").fetchall()
    assert message == "card of ***, 812, refused for ***"
    [[payload]] = connection.execute("select payload from rota.job").fetchall()
    assert (payload["name"], set(payload["token"])) == ("Ada Lovelace", {"sealed", "key"})

    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        connection.execute(SQL.encode())
    said = SQL.rpartition("-- ")[2].rstrip("…\n")
    assert said in str(refused.value) and "tok-8f2e71" not in str(refused.value)

    new = make_key("k2")
    both = CommandLine(
        tmp_path, ROTA_DATABASE_URL=database, ROTA_SECRET_KEYS=f"{new},{old}", COLUMNS=""
    )
    for part in ROTATION.split("$ ")[1:]:
        command, _, printed = part.partition("\n")
        assert both.ok(*command.split()[1:]).out == printed
    shown = rota_.ok("job", "1", "--json").json["job"]["payload"]
    assert shown == {"user": 812, "token": "***", "name": "***"}
    words = ("job", "1", "--reveal", "--why", "she asked for her data")
    assert REVEAL == "$ rota job 1 --reveal --why 'she asked for her data'\n"
    revealed = json.dumps({"user": 812, "token": "tok-8f2e71", "name": "Ada Lovelace"})
    assert json.loads(revealed) == both.ok(*words, "--json").json["job"]["payload"]
    assert "tok-8f2e71" in both.ok(*words).out
    assert "tok-8f2e71" not in rota_.ok(*words).out
    status, error = rota_("job", "1", "--reveal").error
    assert (status, error) == (2, "say why the values are shown: the reason is recorded")
    for part in ERASURE.split("$ ")[1:]:
        command, _, printed = part.partition("\n")
        erased = rota_.ok(*shlex.split(command)[1:])
        assert erased.err + erased.out == printed
    assert connection.execute("select payload ?& '{rota.erased}' from rota.jobs").fetchall() == [
        (True,)
    ]
    for statement in ERASING.splitlines():
        assert connection.execute(statement.encode()).fetchall() == []
    app.close()
