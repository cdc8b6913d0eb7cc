import os
from collections.abc import Iterator
from typing import Any

import psycopg
import rota
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from rota.integrations import asgi
from rota.kinds import report

reports = report.Reports(os.environ.get("FILES", "files"))  # a disk that site and workers share
app = rota.App(jobs=[reports.jobs])
endpoints = report.Endpoints(reports, secret=os.environ["EXPORT_SECRET"])
site = FastAPI(lifespan=asgi.lifespan(app))
site.mount("/reports", endpoints.asgi)

PAGE = """<!doctype html>
<html lang="en"><title>Export</title>
<button onclick="start()">Export</button>
<progress hidden aria-label="export"></progress>
<a hidden download>Download</a>
<p role="status"></p>
<script>
const find = (name) => document.querySelector(name);
const ask = async (url, how) => (await fetch(url, how)).json();
async function start() {
  const file = await ask("/exports", {method: "POST"});
  const bar = find("progress");
  bar.hidden = false;
  for (;;) {
    const run = await ask(file.replace("/file?", "?"));
    find("p").textContent = run.progress;
    if (run.pages) Object.assign(bar, {max: run.pages, value: run.pages_done});
    if (run.status == "ready") return Object.assign(find("a"), {href: file, hidden: false});
    if (run.status != "queued" && run.status != "running") return;
    await new Promise((done) => setTimeout(done, 1000));
  }
}
</script>"""


@reports.report("orders", columns=["id", "cents"], keep="7d")
class Orders:
    @staticmethod
    def ranges(params: dict[str, Any]) -> list[list[int]]:
        query = "select coalesce(max(id), 0) from orders where account = %s"
        with psycopg.connect(app.url) as connection:
            [(last,)] = connection.execute(query, [params["account"]]).fetchall()
        return [[first, first + 9_999] for first in range(1, last + 1, 10_000)]

    @staticmethod
    def rows(params: dict[str, Any], range: list[int]) -> Iterator[tuple[Any, ...]]:
        query = "select id, cents from orders where account = %s and id between %s and %s"
        with psycopg.connect(app.url) as connection, connection.cursor("orders") as cursor:
            yield from cursor.execute(query + " order by id", [params["account"], *range])


@site.get("/")
def show_page() -> HTMLResponse:
    return HTMLResponse(PAGE)


@site.post("/exports")
def start_export() -> str:
    account = 42  # of the user who is logged in
    run = reports.request("orders", {"account": account}, by=f"account:{account}")
    return "/reports" + endpoints.link(run)
