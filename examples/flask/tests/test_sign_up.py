from shop.jobs import send_welcome_email


def test_a_sign_up_sends_a_welcome_email(rota_test, client):
    with rota_test.expect_enqueued(send_welcome_email) as expected:
        client.post("/users", data={"email": "ada@example.org"})
    assert rota_test.perform(expected.job.id).result == "sent to ada@example.org"
