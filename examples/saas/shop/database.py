"""The tables of the shop, and sessions for requests and jobs."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import cache
from typing import ClassVar

from sqlalchemy import Engine, ForeignKey, create_engine, make_url
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from shop.queue import app


class Base(DeclarativeBase):
    type_annotation_map: ClassVar = {datetime: TIMESTAMP(timezone=True)}


class User(Base):
    __tablename__ = "shop_user"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]


class LoginSession(Base):
    __tablename__ = "shop_session"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id), index=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id), index=True)
    cents: Mapped[int]
    day: Mapped[date] = mapped_column(default=lambda: datetime.now(UTC).date(), index=True)


class Invoice(Base):
    __tablename__ = "shop_invoice"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id), index=True)
    cents: Mapped[int]
    due_on: Mapped[date] = mapped_column(index=True)
    paid: Mapped[bool] = mapped_column(default=False)


class Activity(Base):
    """A line of tonight's report."""

    __tablename__ = "shop_activity"
    id: Mapped[int] = mapped_column(primary_key=True)
    what: Mapped[str]
    user_id: Mapped[int]
    report: Mapped[int | None] = mapped_column(index=True)
    """The job that put it into a report; None: it is in none yet."""


class Sales(Base):
    """What was sold on a day."""

    __tablename__ = "shop_sales"
    day: Mapped[date] = mapped_column(primary_key=True)
    orders: Mapped[int]
    cents: Mapped[int]


class WeeklyReport(Base):
    __tablename__ = "shop_weekly_report"
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id), primary_key=True)
    week: Mapped[date] = mapped_column(primary_key=True)
    orders: Mapped[int]


class FrontPage(Base):
    """What the front page shows; a job refreshes it."""

    __tablename__ = "shop_front_page"
    id: Mapped[int] = mapped_column(primary_key=True)
    users: Mapped[int]
    orders: Mapped[int]


@cache
def _engine(url: str) -> Engine:
    return create_engine(make_url(url).set(drivername="postgresql+psycopg"))


def open_session() -> Session:
    return sessionmaker(_engine(app.url), expire_on_commit=False)()


def get_session() -> Iterator[Session]:
    """For FastAPI's Depends."""
    with open_session() as session:
        yield session


def create_tables(url: str) -> None:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    Base.metadata.create_all(engine)
    engine.dispose()


if __name__ == "__main__":
    create_tables(app.url)
