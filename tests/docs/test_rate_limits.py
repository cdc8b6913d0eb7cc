"""The blocks of rate-limits.md do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import rota
from tests.docs.reader import read_page
from tests.support import forked
from tests.support.rules import rule

PAGE = read_page("rate-limits.md")


@rule("M62")
@pytest.mark.system
def test_the_page_can_be_followed(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    declared, keyed, told, taken, changed = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    page: dict[str, Any] = {}
    for block in (declared, keyed, told):
        exec(block, page)  # the page is ours
    app: rota.App = page["app"]
    exec(taken, page)
    assert capsys.readouterr().out == "three mails may go out now\n"

    (tmp_path / "shop.py").write_text(declared)
    forked.write_rota(tmp_path)
    [shell] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ROTA_APP": "shop:app"}
    done = subprocess.run(
        ["sh", "-ec", shell],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rate limit smtp: 50 starts in 1 min, 5 at once" in done.stdout
    exec(changed, page)
    assert [one.starts for one in app.limits.list() if one.name == "smtp"] == [200]

    answer = SimpleNamespace(status_code=429, headers={"Retry-After": "7"})
    monkeypatch.setattr(httpx, "post", lambda _: answer)
    with pytest.raises(rota.RateLimited) as raised:
        page["call"]("acme")
    assert raised.value.retry_after_s == 7
    page["export"].enqueue("acme", [1, 2])
    page["newsletter"].enqueue(1)
    assert app.drain().succeeded == 2
    app.close()
