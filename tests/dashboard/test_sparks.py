"""The last runs of a schedule as a picture."""

from __future__ import annotations

import re

import rota
from tests.dashboard.conftest import PREFIX, Serve
from tests.support.rules import rule


@rule("M10", "M87")
def test_the_list_of_schedules_shows_the_last_runs_of_each_and_triggers_one(
    app: rota.App, serve: Serve
) -> None:
    greet = app.types["greet"]
    app.schedules.put("dies", None, greet.new(5, "dies"))
    app.schedules.trigger("dies")
    app.drain()
    site = serve()
    page = site.get("/schedules").text
    assert re.findall('aria-label="the last runs: ([^"]*)"', page) == ["1 dead"]
    assert "dead, took" in page and "ValueError, triggered" in page
    done = site.post("/schedules/trigger", schedule="nightly", why="now", back="/schedules")
    assert done.headers["location"] == f"{PREFIX}/schedules"
    page = site.get("/schedules").text
    assert re.findall('aria-label="the last runs: ([^"]*)"', page) == ["1 dead", "1 queued"]
