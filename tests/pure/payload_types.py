"""The types that handlers in tests take: at module level, where annotations can find them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Generic, TypedDict, TypeVar

import msgspec
import pydantic

T = TypeVar("T")


def _to_second(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Period:
    start: date
    end: date | None = None
    at: list[datetime] = field(default_factory=list)


class Line(TypedDict):
    sku: str


class Node(msgspec.Struct):
    name: str
    children: list[Node] = []


@dataclass
class Widening(Generic[T]):
    within: Widening[list[T]] | None = None


class Address(pydantic.BaseModel):
    street: str
    number: int = pydantic.Field(ge=1, alias="houseNumber")
    since: datetime | None = None


@dataclass
class Term(Period):
    pupils: int = 0


class Leaf(Node):
    colour: str = "green"


class Home(Address):
    owner: str = "ann"


class Share(pydantic.BaseModel):
    share: float


class Household(pydantic.BaseModel):
    homes: list[Address] = []
    key: object = pydantic.Field(default=None, exclude=True)
    counted_at: datetime | None = None

    @pydantic.field_serializer("counted_at")
    def _round(self, at: datetime | None) -> str | None:
        return None if at is None else _to_second(at)


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr = pydantic.SecretStr("")


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
