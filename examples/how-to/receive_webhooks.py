import os
from typing import Any

import rota
from fastapi import FastAPI, HTTPException, Request
from rota.integrations import asgi
from rota.kinds import webhook

app = rota.App()
receiver = FastAPI(lifespan=asgi.lifespan(app))
secret = os.environ["WEBHOOK_SECRET"]  # the sender gives it to you: whsec_…


@app.job
def take_event(event: dict[str, Any]) -> str:
    if event["type"] != "order.paid":
        return f"ignored: {event['type']}"  # for example, the event "test" of Rota
    return f"order {event['data']['order']} is paid"


@receiver.post("/hooks")
async def hook(request: Request) -> None:
    try:
        event = webhook.verify(request.headers, await request.body(), secret)
    except webhook.NotVerified:
        raise HTTPException(400) from None
    await take_event.using(key=request.headers["webhook-id"]).aenqueue(event)
