import os
import urllib.request

import rota
from fastapi import FastAPI
from rota.integrations import asgi

PROVIDER = os.environ.get("PROVIDER", "https://pay.example/charges")
app = rota.App()
site = FastAPI(lifespan=asgi.lifespan(app))


@app.job(unique=rota.Unique("export:{account}", scope="live"))
def export_orders(account: int) -> str:
    return f"orders of {account}"


@app.job(unique="charge:{order}", takes_context=True, timeout="30s")
def charge(ctx: rota.Context, order: int) -> str:
    key = f"charge:{order}"
    return ctx.effect(key).call(pay, order, key)


def pay(order: int, key: str) -> str:
    request = urllib.request.Request(PROVIDER, b"", {"Idempotency-Key": key, "Order": str(order)})
    with urllib.request.urlopen(request, timeout=20) as response:
        return str(response.headers["Charge-Id"])


@site.post("/accounts/{account}/export")
async def press_export(account: int) -> rota.Enqueued:
    return await export_orders.aenqueue(account)


@site.post("/orders/{order}/pay")
async def press_pay(order: int) -> rota.Enqueued:
    return await charge.aenqueue(order)
