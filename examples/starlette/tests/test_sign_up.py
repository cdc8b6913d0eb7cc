from shop.jobs import send_welcome_email


async def test_a_sign_up_sends_a_welcome_email(rota_test, client):
    async with rota_test.expect_enqueued(send_welcome_email) as expected:
        answer = await client.post("/users", params={"email": "ada@example.org"})
    assert answer.json()["id"] == expected.job.id
    done = await rota_test.aperform(expected.job.id)
    assert done.result == "sent to ada@example.org"
