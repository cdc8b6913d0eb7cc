"""Django on psycopg 3, whose connections belong to threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, ClassVar, Self, TypeVar

import django.db
from django.db import connections, transaction

from rota.store.db import Database
from rota.store.driver import Operation, drive
from rota.store.drivers import find_driver
from tests.store.conformance.adapters import Adapter
from tests.support.django_site import django_database

T = TypeVar("T")


class DjangoAdapter(Adapter):
    """A connection of Django's, in a thread of its own."""

    begins_itself = True
    server_error = django.db.Error
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, url: str, autocommit: bool) -> None:
        self.database = Database(url)
        self.stack = ExitStack()
        self.thread = self.stack.enter_context(ThreadPoolExecutor(1))
        self.alias = self.stack.enter_context(django_database(url, **self.options))
        self.blocks: list[transaction.Atomic] = []
        self.there(lambda: self.connection.set_autocommit(autocommit))

    @classmethod
    def open(cls, url: str, *, autocommit: bool = True) -> Self:
        return cls(url, autocommit)

    @property
    def connection(self) -> Any:
        return connections[self.alias]

    def target(self) -> Any:
        """What is handed to Rota."""
        return self.connection

    def there(self, call: Callable[[], T]) -> T:
        """Call something in the thread of the connection."""
        return self.thread.submit(call).result(100)

    def close(self) -> None:
        self.there(self._close)
        self.stack.close()

    def _close(self) -> None:
        self.connection.connection.close()  # whatever blocks are open

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        return self.there(lambda: self._execute(text))

    def _execute(self, text: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else []

    def run(self, operation: Operation[T], *, atomic: bool = False) -> T:
        statements = self.database.statements
        return self.there(
            lambda: drive(find_driver(self.target()), operation, statements, atomic=atomic)
        )

    def ask(self, operation: Operation[T], *, atomic: bool = False) -> T:
        return self.there(lambda: self.database.run(operation, self.target(), atomic=atomic))

    def begin(self) -> None:
        self.savepoint()

    def savepoint(self) -> None:
        self.blocks.append(transaction.atomic(using=self.alias))
        self.there(self.blocks[-1].__enter__)

    def commit(self) -> None:
        if self.blocks:
            self.there(lambda: self.blocks.pop().__exit__(None, None, None))
        else:
            self.there(lambda: transaction.commit(using=self.alias))

    def rollback(self) -> None:
        if self.blocks:
            self.rollback_to_savepoint()
        else:
            self.there(lambda: transaction.rollback(using=self.alias))

    def rollback_to_savepoint(self) -> None:
        """Leave the innermost atomic block with an error."""
        error = RuntimeError("roll back")
        self.there(lambda: self.blocks.pop().__exit__(RuntimeError, error, None))


class DjangoAliasAdapter(DjangoAdapter):
    """The alias of a connection that binds parameters on the server."""

    options: ClassVar[dict[str, Any]] = {"server_side_binding": True}

    def target(self) -> Any:
        """What is handed to Rota."""
        return self.alias
