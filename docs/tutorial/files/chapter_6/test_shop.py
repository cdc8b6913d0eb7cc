import psycopg
import pytest
import shop


def test_an_order_gets_a_receipt(rota_test, outbox):
    order_id = shop.place_order("ada@example.org", "green tea")
    rota_test.enqueued(shop.send_receipt, order_id=order_id)
    assert rota_test.drain().succeeded == 1
    assert "green tea" in outbox.read_text()


def test_an_order_that_fails_gets_no_receipt(rota_test):
    shop.place_order("ada@example.org", "cup")
    with pytest.raises(psycopg.errors.CheckViolation):
        shop.place_order("bo@example.org", "cup")
    assert len(rota_test.all_enqueued(shop.send_receipt)) == 1


def test_a_receipt_is_sent_when_the_mail_server_is_back(rota_test, outbox, tmp_path):
    shop.place_order("ada@example.org", "green tea")
    outbox.parent.rename(tmp_path / "away")
    assert rota_test.drain().failed == 1
    outbox.parent.mkdir()
    rota_test.advance("2m")
    assert rota_test.drain().succeeded == 1


def test_the_stock_is_reported_every_night(rota_test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        rota_test.advance("24h")
        assert rota_test.drain().succeeded == 1
    assert len(list(tmp_path.glob("reports/*.csv"))) == 2
