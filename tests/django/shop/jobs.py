"""The job types of the shop."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

import rota
from rota.integrations.django import app
from tests.django.shop.models import Customer


@app.job("welcome", queue="email")
def welcome(customer_id: int) -> str:
    """Count a mail."""
    customer = Customer.objects.get(pk=customer_id)
    Customer.objects.filter(pk=customer_id).update(mails=F("mails") + 1)
    return f"sent to {customer.name}"


@app.job("welcome_all", transactional=True)
def welcome_all(fails: bool) -> None:
    """Enqueue a mail for each customer, all or none."""
    with transaction.atomic():
        for customer in Customer.objects.all():
            welcome.enqueue(customer.pk)
        if fails:
            raise ValueError("no mails today")


@app.job("count", process=True)
def count() -> int:
    """Count the customers, in a process of its own."""
    return Customer.objects.count()


@app.job("greet")
async def greet(name: str) -> str:
    """Read and enqueue as async code does."""
    customer = await Customer.objects.aget(name=name)
    await welcome.aenqueue(customer.pk)
    return f"hello {customer.name}"


@app.job("explain", takes_context=True)
def explain(context: rota.Context) -> str:
    """Tell which release runs."""
    return str(context.job.id)


app.schedule("nightly", "0 2 * * *", welcome_all.new(False))
