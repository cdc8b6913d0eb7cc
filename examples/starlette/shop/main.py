import os

import rota
from rota.integrations import asgi
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from shop.database import Session, User, engine
from shop.jobs import jobs, send_welcome_email

queue = rota.App(engine.url, jobs=[jobs])


async def sign_up(request: Request) -> JSONResponse:
    async with Session.begin() as session:
        user = User(email=request.query_params["email"])
        session.add(user)
        await session.flush()  # the database gives the user its id
        job = await send_welcome_email.using(session).aenqueue(user.id)
    return JSONResponse(job.to_dict(), status_code=201)


site = Starlette(
    routes=[Route("/users", sign_up, methods=["POST"])],
    lifespan=asgi.lifespan(queue, run_worker="RUN_WORKER" in os.environ),
)
