"""A worker whose one job is a shell script: `python -m tests.worker.program_app OPTIONS`."""

from __future__ import annotations

import json
import logging
import os
import sys

import rota

app = rota.App(release="programs-1")
app.command("script", ["sh", "-c", os.environ["SCRIPT"]], timeout="1h")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app.run(**json.loads(sys.argv[1]))
