"""A worker whose one job is a shell script: `python -m tests.worker.program_app OPTIONS`."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path

import rota

app = rota.App(release="programs-1")
app.command("script", ["sh", "-c", os.environ["SCRIPT"]], timeout="1h")


@app.job("copy")
def copy() -> None:
    """Leave a copy of the worker behind, as a fork server does, that runs until it is killed."""
    if (pid := os.fork()) == 0:
        signal.pause()
    Path(os.environ["COPY"]).write_text(str(pid))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app.run(**json.loads(sys.argv[1]))
