"""The blocks of chunks.md do what the page says."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import rota
from tests.docs.reader import read_page
from tests.support.rules import rule

PAGE = read_page("chunks.md")
INDEX, SEND = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Search:
    """A service that takes many documents at once, and refuses some."""

    def __init__(self) -> None:
        self.calls: list[dict[int, str]] = []

    def bulk(self, docs: dict[int, str]) -> dict[int, Exception | None]:
        self.calls.append(docs)
        return {id_: ValueError("no text") if not text else None for id_, text in docs.items()}


@rule("M72")
def test_the_index_of_the_page_takes_many_docs_and_answers_for_each(database: str) -> None:
    app = rota.App(database)
    search = Search()
    names: dict[str, Any] = {"app": app, "search": search}
    exec(INDEX, names)
    names["index_docs"].enqueue(id=9, text="")
    app.drain()
    assert search.calls == [{7: "a text", 8: "the same, by its fields", 9: ""}]
    found = {job.payload["id"]: str(job.status) for job in app.find()}
    assert found == {7: "succeeded", 8: "succeeded", 9: "failed"}
    app.close()


@rule("M52")
def test_the_newsletter_of_the_page_sends_each_letter_once(database: str) -> None:
    @dataclass
    class Letter:
        issue: int
        user: int

    sent: list[int] = []

    class Mailer:
        def send(self, letter: Letter) -> str:
            sent.append(letter.user)
            if sent == [0, 1, 2]:
                raise RuntimeError("the third one is refused, and would be a second time")
            return f"id-{letter.user}"

    app = rota.App(database)
    names: dict[str, Any] = {"app": app, "rota": rota, "Letter": Letter, "mailer": Mailer()}
    exec(SEND, names)
    app.enqueue_many([names["send_all"].new(Letter(1, user)) for user in range(5)])
    app.drain()
    assert sorted(sent) == [0, 1, 2, 3, 4]
    assert [job.payload["user"] for job in app.find(status="dead")] == [2]
    app.close()


@rule("M72")
def test_gather_gives_such_a_list(database: str) -> None:
    app = rota.App(database)

    @app.job("calls", chunk=10)
    async def call(docs: list[Numbered]) -> list[Any]:
        return await asyncio.gather(*map(one, docs), return_exceptions=True)

    async def one(doc: Numbered) -> int:
        if doc.id:
            raise ValueError(doc.id)
        return doc.id

    app.enqueue_many([call.new(Numbered(0)), call.new(Numbered(1))])
    app.drain()
    assert {job.payload["id"]: str(job.status) for job in app.find()} == {
        0: "succeeded",
        1: "failed",
    }
    app.close()


@dataclass
class Numbered:
    id: int
