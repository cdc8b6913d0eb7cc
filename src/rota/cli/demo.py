"""`rota demo`: plays the story of the example `saas`, and shows each promise with its SELECT."""

from __future__ import annotations

import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from rota import embedded
from rota.cli.flags import flag
from rota.cli.target import JsonOption
from rota.declare.url import find_url
from rota.errors import UsageError

PLACES = ("rota/_examples/saas", "../examples/saas")
"""Places of the example: in an installed package; in a checkout, beside the package's folder."""
NEEDED = (
    "aiosmtpd", "aiosmtplib", "email_validator", "fastapi", "httpx2", "jinja2", "sqlalchemy",
    "time_machine", "uvicorn",
)  # fmt: skip


def demo(
    cron: bool = flag("--cron", "No worker runs for ever: drains do what is due."),
    open: bool = flag("--open", "Leave all running for a look around, until Ctrl-C."),
    as_json: JsonOption = False,
) -> None:
    """Play an evening, a night and a morning of a small shop, and show each promise with a SELECT.

    Workers are killed and a CRM is down. Uses the server of ROTA_DATABASE_URL, otherwise a private
    server; there it makes the database rota_demo, which the next demo drops.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(f"the demo needs {', '.join(missing)}: pip install 'rota[demo]'")
    beside = Path(__file__).resolve().parent.parent.parent
    [example, *_] = [place for name in PLACES if (place := beside / name).is_dir()]
    os.environ["ROTA_DATABASE_URL"] = find_url(None) or embedded.start()
    given = {"--cron": cron, "--open": open, "--json": as_json}
    sys.argv = ["rota demo", *(name for name, is_given in given.items() if is_given)]
    sys.path.insert(0, str(example.resolve()))
    runpy.run_module("story", run_name="__main__")
