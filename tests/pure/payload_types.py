"""The types that handlers in tests take: at module level, where annotations can find them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime

import msgspec
import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Period:
    start: date
    end: date | None = None
    at: list[datetime] = field(default_factory=list)


class Node(msgspec.Struct):
    name: str
    children: list[Node] = []


class Address(pydantic.BaseModel):
    street: str
    number: int = pydantic.Field(ge=1, alias="houseNumber")
    since: datetime | None = None


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr = pydantic.SecretStr("")
    token: pydantic.SecretBytes | None = None


class Vault(pydantic.BaseModel):
    logins: list[Login]


class OpenLogin(Login):
    @pydantic.field_serializer("password", when_used="json")
    def _open(self, password: pydantic.SecretStr) -> str:
        return password.get_secret_value()


class User:
    """Stands for an ORM object: it has an id, and cannot be stored."""

    def __init__(self, id: int) -> None:
        self.id = id
