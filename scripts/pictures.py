"""Makes the pictures of the dashboard: real pages, of a shop that has trouble.

    python scripts/pictures.py [DIRECTORY]

It starts a private PostgreSQL, and needs Playwright and a Chromium on the PATH.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import uvicorn
from playwright.sync_api import ViewportSize, sync_playwright

import rota
from rota import embedded
from rota.dashboard import Access, dashboard

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"overview": "/", "job": "/jobs/17", "errors": "/errors"}


@contextmanager
def open_shop(url: str) -> Iterator[rota.App]:
    """A shop whose jobs have run, some of them not well."""
    app = rota.App(url, release="shop-42")

    @app.job("send_mail", queue="mail", max_attempts=1)
    def send_mail(user_id: int, template: str) -> str:
        if user_id % 17 == 0:
            raise ValueError(f"user {user_id} has no address")
        if user_id % 29 == 0:
            raise ConnectionError(f"smtp.shop.example:587 said nothing for {user_id / 10} s")
        return template

    @app.job("crm", queue="webhooks", breaker=rota.Breaker("crm"), max_attempts=5)
    def crm(order_id: int) -> None:
        raise TimeoutError(f"order {order_id}: crm.example does not answer")

    @app.job("invoice", queue="invoices")
    def invoice(order_id: int) -> None:
        pass

    app.schedule("nightly-report", "0 2 * * *", invoice.new(1))
    app.migrate()
    app.sync()
    app.enqueue_many([send_mail.new(number, "welcome") for number in range(1, 200)])
    app.enqueue_many([invoice.new(number) for number in range(1000, 1080)])
    app.queues.pause("invoices", why="the tax service moves", by="ann")
    app.drain()
    app.enqueue_many([crm.new(number) for number in range(1000, 1012)])
    app.drain()
    app.breakers.trip("crm", why="crm.example is down", by="ann")
    yield app
    app.close()


@contextmanager
def serve(app: rota.App) -> Iterator[str]:
    """Serve the dashboard of an App; return its address."""
    made = dashboard(app, authorize=lambda _: Access("ann"), environment="production")
    config = uvicorn.Config(made.asgi, host="127.0.0.1", port=0, log_level="warning")
    server, socket = uvicorn.Server(config), config.bind_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def take(address: str, directory: Path, browser_path: str) -> None:
    """Take the pictures, in a thread of their own: Playwright has a loop there."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
        for scheme in schemes:
            for name, path in PAGES.items():
                size: ViewportSize = {"width": 1280, "height": 860}
                page = browser.new_page(color_scheme=scheme, viewport=size)
                page.goto(address + path)
                page.screenshot(path=directory / f"{name}-{scheme}.png")
                page.close()
        browser.close()


def main(directory: Path) -> None:
    """Write the pictures."""
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser_path is None:
        sys.exit("pictures: there is no Chromium on the PATH")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        url = embedded.start(Path(place) / "postgres")
        with open_shop(url) as app, serve(app) as address:
            taking = threading.Thread(target=take, args=(address, directory, browser_path))
            taking.start()
            taking.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures")
