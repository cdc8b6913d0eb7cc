"""The page of Dask, followed on a cluster."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.docs.reader import Reader, read_page
from tests.support.server import PostgresServer
from tests.worker.test_dask import run_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are for Linux"),
    pytest.mark.skipif(
        importlib.util.find_spec("distributed") is None,
        reason="NOT TRIED: the page of Dask; pip install 'rota[dask]'",
    ),
]


def test_a_reader_of_the_page_computes_on_the_cluster(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    (tmp_path / "cluster").mkdir()
    with run_cluster(tmp_path / "cluster", str(tmp_path / "reader")) as scheduler:
        (tmp_path / "reader").mkdir()
        with Reader(tmp_path / "reader", server, empty_database) as reader:
            reader.environment["ROTA_DATABASE_URL"] = empty_database
            page = read_page("dask.md").replace("tcp://127.0.0.1:8786", "$SCHEDULER")
            before, after = page.split("export ROTA_DASK_SCHEDULER=$SCHEDULER\n")
            reader.follow(re.sub(r"```sh\n\Z", "", before))
            reader.environment["ROTA_DASK_SCHEDULER"] = scheduler
            reader.follow("```sh\n" + after)
            shown = reader.type("rota job 1 --app cluster:app --json")
    assert '"status":"succeeded"' in shown
    assert f'"result":{sum(n * n for n in range(40_000))}' in shown
