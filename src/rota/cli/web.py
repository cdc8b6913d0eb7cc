"""`rota web`: the dashboard, for people without an application to mount it in."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

import typer

from rota.app import App
from rota.cli.flags import flag, option
from rota.cli.target import Place
from rota.errors import UsageError

TOKEN_MIN = 16
HERE = ("127.0.0.1", "::1", "localhost")


def web(
    place: Place,
    host: str = option("--host ADDRESS", "Address to listen on.", default=HERE[0]),
    port: int = option("--port", "Port to listen on.", default=8080, min=0, max=65535),
    read_only: bool = flag("--read-only", "Nobody may act, also with the token."),
) -> None:
    """Serve the dashboard until Ctrl-C.

    Who gives the password of ROTA_WEB_TOKEN (at least 16 characters), with any user name, may act
    under that name. Without that variable it is for this machine only, and only to look.
    """
    missing = [name for name in ("jinja2", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(f"rota web needs {' and '.join(missing)}: pip install 'rota[web]'")
    token = os.environ.get("ROTA_WEB_TOKEN")
    if token is not None and len(token) < TOKEN_MIN:
        raise UsageError(f"ROTA_WEB_TOKEN must have at least {TOKEN_MIN} characters")
    if token is None and host not in HERE:
        raise UsageError("set ROTA_WEB_TOKEN to serve others: they give it as password")
    database, owner = place.find_target()
    app = owner or App(database.url, schema=database.schema)
    typer.echo(f"the dashboard: http://{host}:{port}/", err=True)
    # Imported by name: the dashboard stands above this package.
    serving = import_module("rota.dashboard.serving")
    serving.serve(app, host, port, token, read_only=read_only)
