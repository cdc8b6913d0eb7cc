"""The end of a program that has used an App and closed nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.system

# What is registered first runs last. On Python 3.13 each thread that is then left of a pool costs
# five seconds and a warning.
ENQUEUE = """
import atexit, threading
def others():
    return [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
atexit.register(lambda: print(sorted(thread.name for thread in others())))
import rota
app = rota.App()
@app.job("send")
def send(): pass
print(send.enqueue().id)
atexit.register(lambda: print(send.enqueue().id))
print(sum(thread.name.startswith("pool-") for thread in threading.enumerate()) > 0)
"""


def test_a_program_that_ends_has_closed_its_pool_after_its_own_last_calls(database: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ENQUEUE],
        env=os.environ | {"ROTA_DATABASE_URL": database},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ran.stdout.split("\n", 3), ran.stderr) == (["1", "True", "2", "[]\n"], "")
