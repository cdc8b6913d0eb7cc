import pytest

from shop.database import Base, Session, make_engine
from shop.main import site


@pytest.fixture(scope="session")
def rota_template():
    def create_tables(url):
        engine = make_engine(url)
        Base.metadata.create_all(engine)
        engine.dispose()

    return create_tables


@pytest.fixture
def client(rota_test):
    engine = make_engine(rota_test.url)
    Session.configure(bind=engine)
    yield site.test_client()
    engine.dispose()
