import os
import smtplib
from contextlib import suppress
from email.message import EmailMessage
from typing import Any

import psycopg
import rota

app = rota.App()


def fill_cart(connection: psycopg.Connection[Any], cart: int, address: str) -> None:
    connection.execute("insert into cart (id, address) values (%s, %s)", [cart, address])
    remind.using(connection, delay="3d").enqueue(cart)


def pay_cart(connection: psycopg.Connection[Any], cart: int) -> None:
    connection.execute("update cart set paid = true where id = %s", [cart])
    with suppress(rota.errors.KeyNotFound, rota.WrongStatus):  # it was sent, or called off, before
        app.cancel(key=f"cart:{cart}", job_type=remind, why="it was paid", connection=connection)


@app.job(
    unique="cart:{cart}",
    expires="1d",
    on_expired="drop",
    takes_context=True,
    timeout="30s",
)
def remind(ctx: rota.Context, cart: int) -> str:
    with psycopg.connect(app.url) as connection:
        query = "select address from cart where id = %s and not paid"
        row = connection.execute(query, [cart]).fetchone()
    if row is None:
        raise rota.Cancel("the cart is paid, or gone")
    ctx.effect(f"cart_mail:{cart}", if_uncertain="skip").call(mail_reminder, row[0])
    return f"sent to {row[0]}"


def mail_reminder(address: str) -> None:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Your cart", "shop@a.example", address
    message.set_content("Something is still in your cart.")
    with smtplib.SMTP(os.environ.get("SMTP_HOST", "localhost"), timeout=20) as server:
        server.send_message(message)
