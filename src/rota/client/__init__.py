"""What an application asks of the database, sync and async."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.client.acting import Acting
from rota.client.enqueueing import Enqueueing
from rota.client.pausing import Pausing
from rota.client.reading import Reading
from rota.client.scheduling import Scheduling

if TYPE_CHECKING:
    from rota.store.db import Database


class Client(Enqueueing, Reading, Acting, Pausing, Scheduling):
    """All of it. An App is one."""


class Direct(Client):
    """A client of a database, without an App."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def database(self) -> Database:
        """The database that is asked."""
        return self._database
