"""Tasks of Django."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import django

import rota
from tests.django.shop.models import Customer

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import task
else:
    from django_tasks import task


@task(queue_name="mail")
def count_mail(customer_id: int, *, by: int = 1) -> int:
    """Count a mail."""
    customer = Customer.objects.get(pk=customer_id)
    customer.mails += by
    customer.save()
    return customer.mails


@task(takes_context=True)
def fail_twice(context: Any) -> int:
    """Succeed in the third attempt."""
    attempt: int = context.attempt
    if attempt < 3:
        raise ValueError(f"attempt {attempt} of {context.task_result.id}")
    return attempt


@task
async def find_customer(name: str) -> int:
    """Read as async code does."""
    return int((await Customer.objects.aget(name=name)).pk)


@task
def fail(text: str) -> None:
    """Fail for good."""
    raise rota.Dead(text)


@task
def return_a_function() -> Any:
    """Return what JSON cannot hold."""
    return lambda: True


OPTIONS: dict[str, Any] = {}
if django.VERSION[:2] != (6, 0):  # it takes no options of a backend
    OPTIONS = {"max_attempts": 8, "timeout": "20s", "key": lambda id_: f"once:{id_}"}


@task(**OPTIONS)  # type: ignore[untyped-decorator]
def once(id_: int) -> int:
    """Run once for an id."""
    return id_
