"""A role of one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg


@contextmanager
def login_role(admin: psycopg.Connection[Any], database: str, *grants: str) -> Iterator[str]:
    """Make a role that may log in, for a block; what it gets in the database goes with it.

    The grants are run in the database before, with the role's name for `{}`.
    """
    name = f"role_{uuid4().hex[:12]}"
    admin.execute(f"create role {name} login".encode())
    with psycopg.connect(database, autocommit=True) as connection:
        for grant in grants:
            connection.execute(grant.format(name).encode())
        yield name
        connection.execute(f"drop owned by {name} cascade; drop role {name}".encode())
