import pytest
import shop


@pytest.fixture(scope="session")
def rota_template():
    return shop.create_tables


@pytest.fixture
def outbox(tmp_path, monkeypatch):
    mails = tmp_path / "outbox" / "mails.txt"
    mails.parent.mkdir()
    monkeypatch.setattr(shop, "OUTBOX", mails)
    return mails
