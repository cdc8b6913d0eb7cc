"""The pages of the shop."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from tests.django.shop.jobs import greet, welcome
from tests.django.shop.models import Customer


def sign_up(request: HttpRequest, name: str) -> JsonResponse:
    """Sign a customer up."""
    with transaction.atomic():
        customer = Customer.objects.create(name=name)
        job = welcome.enqueue(customer.pk)
        if name == "Mallory":
            raise PermissionError(name)
    return JsonResponse({"job": job.id})


async def ask(request: HttpRequest, name: str) -> JsonResponse:
    """Enqueue in async code."""
    job = await greet.aenqueue(name)
    return JsonResponse({"job": job.id})
