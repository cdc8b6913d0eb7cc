import asyncio
import os
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "app_user"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]


def make_engine(url: str | URL, **options: Any) -> AsyncEngine:
    return create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"), **options)


async def create_tables(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


engine = make_engine(os.environ.get("DATABASE_URL", "postgresql://localhost/shop"))
Session = async_sessionmaker(engine, expire_on_commit=False)

if __name__ == "__main__":
    asyncio.run(create_tables(engine))
