import os

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "app_user"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]


def make_engine(url: str | URL) -> Engine:
    return create_engine(make_url(url).set(drivername="postgresql+psycopg"))


engine = make_engine(os.environ.get("DATABASE_URL", "postgresql://localhost/shop"))
Session = sessionmaker(engine)

if __name__ == "__main__":
    Base.metadata.create_all(engine)
