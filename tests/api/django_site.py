"""A site in Django with an endpoint that drains, as a program: `python -m tests.api.django_site
URL SECRET` writes its port and serves until it is killed."""

from __future__ import annotations

import sys
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

import rota

app = rota.App(sys.argv[1])


@app.job("greet", takes_context=True)
def greet(ctx: rota.Context, name: str) -> str:
    """Say hello, half-way."""
    ctx.progress(1, 2)
    return f"hello {name}"


tick = rota.wsgi.drain_endpoint(app, secret=sys.argv[2])


@csrf_exempt
def drain(request: HttpRequest) -> HttpResponse:
    """Drain."""
    answer = tick.answer(request.method or "", request.headers.get("authorization"))
    return HttpResponse(answer.body, status=answer.status, headers=answer.headers)


def show(request: HttpRequest, id: int) -> JsonResponse:
    """Show a job."""
    return JsonResponse(app.get(id).to_dict())


urlpatterns = [path("tick", drain), path("jobs/<int:id>", show)]

if __name__ == "__main__":
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="for a test")
    django.setup()
    with make_server("127.0.0.1", 0, get_wsgi_application()) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()
