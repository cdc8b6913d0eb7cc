from typing import Any

import rota
from flask import Flask, request

from shop.database import Session, User, engine
from shop.jobs import jobs, send_welcome_email

queue = rota.App(engine.url, jobs=[jobs])
site = Flask(__name__)


@site.post("/users")
def sign_up() -> tuple[dict[str, Any], int]:
    with Session.begin() as session:
        user = User(email=request.form["email"])
        session.add(user)
        session.flush()  # the database gives the user its id
        job = send_welcome_email.using(session).enqueue(user.id)
    return job.to_dict(), 201
