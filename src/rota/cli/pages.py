"""The pages of the documentation: where they are, their order, and a search in them. Pure, but for
reading the files."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import rota

INDEX = "README.md"
LISTED = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")
ALSO = re.compile(r"<!-- also: (.*?) -->", re.DOTALL)
"""What people call the subject of a page who do not know Rota's words, between commas."""
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PASSAGE_MAX = 160
_ENDINGS = ("ings", "ing", "ers", "ies", "ed", "er", "es", "s", "e", "y")
_EVERYWHERE = frozenset(["a", "an", "and", "do", "for", "how", "i", "in", "is", "of", "the", "to"])


class Page:
    """A page, by its name in the index."""

    def __init__(self, file: Path, name: str, part: str, group: str) -> None:
        self.file = file
        self.name = name
        """Such as `operate/deploy`."""
        self.part = part
        self.group = group

    @cached_property
    def text(self) -> str:
        """The Markdown."""
        return self.file.read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """Its first heading."""
        found = HEADING.search(self.text)
        return found[1] if found else self.name

    @cached_property
    def also(self) -> list[frozenset[str]]:
        """The words of each other name of its subject."""
        found = ALSO.search(self.text)
        return [frozenset(_words(name)) for name in (found[1] if found else "").split(",")]

    @cached_property
    def weights(self) -> dict[str, float]:
        """How much each word says of the page: in its title, its headings, its text."""
        prose = CODE.sub("", ALSO.sub("", self.text))
        weights: dict[str, float] = {
            word: 1 + math.log(count) for word, count in Counter(_words(prose)).items()
        }
        for text, weight in ((" ".join(HEADING.findall(prose)), 3.0), (self.title, 8.0)):
            for word in set(_words(text)):
                weights[word] += weight
        return weights

    @property
    def sentence(self) -> str:
        """Its first sentence."""
        for paragraph in re.split(r"\n\s*\n", self.text):
            if re.match(r"[A-Z`\[*]", paragraph.strip()):
                return re.split(r"(?<=[.:])\s", plain(paragraph))[0]
        return ""

    def find_passage(self, words: list[str]) -> str:
        """Return the paragraph that has most of these words."""
        asked = set(_words(" ".join(words)))
        paragraphs = re.split(r"\n\s*\n|\n(?=[-|])", CODE.sub("", ALSO.sub("", self.text)))
        told = [text for text in paragraphs if len(text) > PASSAGE_MAX // 4] or paragraphs
        best = max(told, key=lambda text: len(asked & set(_words(text))))
        found = plain(best.strip("#| "))
        return found if len(found) <= PASSAGE_MAX else f"{found[:PASSAGE_MAX]}…"


def find_root() -> Path:
    """Return the directory of the pages: of the package, or of the checkout that this is."""
    package = Path(rota.__file__).parent
    installed = package / "_docs"
    return installed if installed.is_dir() else package.parents[1] / "docs"


def list_parts(root: Path) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each group of pages as the index has it: part, group, and the pages with their names
    there. A part without groups has one without a name."""
    for section in (root / INDEX).read_text(encoding="utf-8").split("\n## ")[1:]:
        part, _, text = section.partition("\n")
        for item in re.split(r"\n- |\n\n(?=\d\. )", text):
            listed = [(" ".join(name.split()), path) for name, path in LISTED.findall(item)]
            group = re.match(r"([A-Z][^:\[\]]*):", item.removeprefix("- "))
            if listed:
                yield part.strip(), group[1] if group else "", listed


def list_pages(root: Path) -> list[Page]:
    """Return the pages in the order of the index, each once."""
    pages: dict[str, Page] = {}
    for part, group, listed in list_parts(root):
        for _, path in listed:
            file = (root / path).resolve()
            name = path.removesuffix(".md")
            if file.suffix == ".md" and file.is_file() and file.is_relative_to(root.resolve()):
                pages.setdefault(name, Page(file, name, part, group))
    return list(pages.values())


def search(pages: list[Page], text: str) -> list[Page]:
    """Return the pages that say something of a text, the best first. A page that has the text as
    another name of its subject comes before all others."""
    asked = [word for word in dict.fromkeys(_words(text)) if word not in _EVERYWHERE]
    rarity = {
        word: math.log(1 + len(pages) / (1 + sum(word in page.weights for page in pages)))
        for word in asked
    }
    scores: dict[Page, float] = {}
    for page in pages:
        found = [word for word in asked if word in page.weights]
        score = sum(rarity[word] * page.weights[word] for word in found)
        score *= (len(found) / max(1, len(asked))) ** 2
        if asked and any(set(asked) <= name for name in page.also):
            score += 1_000
        if score:
            scores[page] = score
    return sorted(scores, key=lambda page: -scores[page])


def plain(text: str) -> str:
    """Return Markdown as a line of text, without links and marks."""
    return re.sub(r"[`*]", "", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split())))


def _words(text: str) -> list[str]:
    return [_stem(word) for word in re.findall(r"[a-z0-9]+", text.lower())]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
