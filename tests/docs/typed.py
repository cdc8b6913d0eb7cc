"""The Python of the pages, written out for type checkers: the files of each application, and a
module for each page with its blocks that are no file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.reader import BLOCK, FILE, ROOT, replace_part

SERIES = [
    [f"{name}.md" for name in names.split()]
    for names in (
        "1-first-job 2-when-it-fails 3-with-your-data 4-test-it 5-every-night "
        "6-progress-and-cancel 7-harmless-twice 8-deploy 9-three-in-the-morning",
        "django django-tasks",
        "testing testing-in-a-transaction",
        "mail find-and-resend-mail",
        "webhooks webhook-endpoints",
    )
]
"""Pages of one application, in the order in which a reader follows them."""
SHOP = "app = rota.App()\n"
"""What a page supposes that shows no App."""
UNKNOWN = """# pyright: reportUndefinedVariable=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownLambdaType=false
# pyright: reportUntypedFunctionDecorator=false, reportUnusedImport=false
# pyright: reportDuplicateImport=false
# pyright: reportUnusedCoroutine=false
# mypy: disable-error-code="name-defined,untyped-decorator,no-any-return,var-annotated"
"""
UNANNOTATED = """# pyright: reportMissingParameterType=false
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
MARKS = {
    # A page supposes names that it does not define. Ray, and Django without the plugin of its
    # stubs, have no types.
    r"\A(page_|shop_secrets|mysite)|^(from|import) (ray|django)\b": UNKNOWN,
    # The arguments of tests have no annotations: pytest gives them.
    r"\A(.*/)?(test_|tests\.py|conftest)": UNKNOWN + UNANNOTATED,
}
"""What a file need not have, by what is in its path and text."""
Files = dict[str, str]
"""Texts by path."""


def write_examples(place: Path) -> list[Path]:
    """Write the examples of all pages into as few directories as their names allow; return
    these."""
    made: list[Files] = []
    for pages in list_series():
        for files in read_applications(pages):
            names = list_modules(files)
            into = next((each for each in made if not names & list_modules(each)), None)
            if into is None:
                made.append(into := {})
            into |= files
    for number, files in enumerate(made):
        for path, text in files.items():
            file = place / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            whole = f"{path}\n{text}"
            marks = [mark for found, mark in MARKS.items() if re.search(found, whole, re.MULTILINE)]
            file.write_text("".join(marks) + text)
    return [place / str(number) for number in range(len(made))]


def list_modules(files: Files) -> set[str]:
    return {path.split("/")[0].removesuffix(".py") for path in files}


def list_series() -> Iterator[list[Path]]:
    """Return all pages, those of one application together."""
    pages = {page.name: page for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
    for names in SERIES:
        yield [pages.pop(name) for name in names]
    yield from ([page] for page in pages.values())


def read_applications(pages: list[Path]) -> Iterator[Files]:
    """Yield the files of each application. Where a section writes a file anew, another begins: it
    has the files before, except for their tests."""
    files: Files = {}
    for page in pages:
        loose: list[str] = []
        for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE):
            blocks = [(FILE.match(block), block) for block in read_python(section)]
            loose += [block for file, block in blocks if file is None]
            shown = [(file, block[file.end() :]) for file, block in blocks if file is not None]
            if any(file[1] in files and not file[2] and not file[3] for file, _ in shown):
                yield files
                files = {path: text for path, text in files.items() if "test" not in path}
            for file, text in shown:
                before = files.get(file[1], "")
                files[file[1]] = (
                    replace_part(before, file[3], text)
                    if file[3]
                    else f"{before}\n\n{text}"
                    if file[2]
                    else text
                )
        if loose:
            name = re.sub(r"\W", "_", f"page_{page.stem}")
            files[f"{name}.py"] = "\n\n".join([import_all(files), *loose])
    yield files


def read_python(section: str) -> list[str]:
    """Return the blocks of Python that are followed, without the programs of other libraries."""
    return [
        block
        for is_left_out, language, block, _ in BLOCK.findall(section)
        if language in ("python", "py") and not is_left_out and block[:11] != "# before.py"
    ]


def import_all(files: Files) -> str:
    """Return the first lines of the module of a page, where its files have been run."""
    shops = [path[:-3] for path in files if "/" not in path and "rota.App(" in files[path]]
    return "import rota\n" + ("".join(f"from {shop} import *\n" for shop in shops) or SHOP)
