import pytest
from httpx import ASGITransport, AsyncClient

from shop.database import Session, create_tables, make_engine
from shop.main import site


@pytest.fixture(scope="session")
def rota_template():
    return lambda url: create_tables(make_engine(url))


@pytest.fixture
async def client(rota_test):
    engine = make_engine(rota_test.url)
    Session.configure(bind=engine)
    async with AsyncClient(transport=ASGITransport(site), base_url="http://test") as client:
        yield client
    await engine.dispose()
