import os
import tempfile
from collections.abc import Callable, Iterator

import pytest
from fastapi.testclient import TestClient

_files = tempfile.TemporaryDirectory(prefix="shop-")
os.environ["SHOP_FILES"] = _files.name  # before shop.queue reads it

from shop.database import create_tables  # noqa: E402
from shop.web import web  # noqa: E402

from rota.testing import Harness  # noqa: E402


@pytest.fixture(scope="session")
def rota_template() -> Callable[[str], None]:
    return create_tables


@pytest.fixture
def site(rota_test: Harness) -> Iterator[TestClient]:
    with TestClient(web) as client:
        yield client


@pytest.fixture
def ada(site: TestClient) -> int:
    answer = site.post("/users", json={"email": "ada@shop.example", "name": "Ada"})
    return int(answer.json()["id"])
