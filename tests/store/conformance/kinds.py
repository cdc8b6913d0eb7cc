"""All the connections that `using(connection=…)` takes."""

from __future__ import annotations

from tests.store.conformance.adapters import (
    Adapter,
    AsyncpgAdapter,
    AsyncPsycopgAdapter,
    PsycopgAdapter,
)
from tests.store.conformance.django_adapters import DjangoAdapter, DjangoAliasAdapter
from tests.store.conformance.sqlalchemy_adapters import (
    AsyncPsycopgSessionAdapter,
    AsyncSessionAdapter,
    AsyncSqlAlchemyAdapter,
    SessionAdapter,
    SqlAlchemyAdapter,
)

ADAPTERS: dict[str, type[Adapter]] = {
    "psycopg": PsycopgAdapter,
    "psycopg async": AsyncPsycopgAdapter,
    "asyncpg": AsyncpgAdapter,
    "SQLAlchemy Connection": SqlAlchemyAdapter,
    "SQLAlchemy Session": SessionAdapter,
    "SQLAlchemy AsyncConnection on asyncpg": AsyncSqlAlchemyAdapter,
    "SQLAlchemy AsyncSession on asyncpg": AsyncSessionAdapter,
    "SQLAlchemy AsyncSession on psycopg": AsyncPsycopgSessionAdapter,
    "Django": DjangoAdapter,
    "Django's alias": DjangoAliasAdapter,
}
