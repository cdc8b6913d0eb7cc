"""How long a test waits for its database: `python bench/test_databases.py [TESTS]`.

Lends databases one after the other as the fixture `rota` does, on the private server of tests or on
ROTA_TEST_DATABASE_URL. Each is used for a moment, in which the next copy is made.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg

import rota
from rota import embedded
from rota.testing.databases import TestDatabases, _find_directory

TEST_S = 0.05
"""How long each test takes."""


def main(tests: int) -> None:
    """Print the median and the longest wait for a database, made and dropped, in milliseconds."""
    app = rota.App()
    app.job("noop")(print_nothing)
    waited = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        root.chmod(0o755)
        with TestDatabases(app, root) as databases:
            for _ in range(tests):
                began = time.perf_counter()
                with databases.make_one() as url:
                    waited.append(time.perf_counter() - began)
                    with psycopg.connect(url) as connection:
                        connection.execute("select from rota.job")
                    time.sleep(TEST_S)
                    began = time.perf_counter()
                waited[-1] += time.perf_counter() - began
        embedded.stop(_find_directory(root))
    ms = sorted(1000 * wait_s for wait_s in waited)
    print(f"{tests} tests: median {statistics.median(ms):.0f} ms, longest {ms[-1]:.0f} ms")


def print_nothing() -> None: ...


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
