"""`rota docs`: searches and shows the pages of the documentation, here or in a browser."""

from __future__ import annotations

import html
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import typer
from markdown_it import MarkdownIt  # of rich
from rich.markdown import Markdown

from rota.cli.flags import argument, flag, option
from rota.cli.output import console, print_json, print_text, read_template
from rota.cli.pages import ALSO, INDEX, Page, find_root, list_pages, search
from rota.cli.target import JsonOption
from rota.errors import RotaError

SHOWN = 5
KINDS = {".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json"}
"""Files that pages show or name, by their endings."""


def docs(
    words: list[str] | None = argument(
        "WORDS", "What to look for, or a page's name.", default=None
    ),
    web: bool = flag("--web", "Show the pages in a browser, on this machine."),
    port: int = option("--port", "Port of --web; 0: any.", default=8000, min=0, max=65535),
    as_json: JsonOption = False,
) -> None:
    """Search the documentation; show a page by its name; without words, list the pages."""
    root = find_root()
    pages = [page for page in list_pages(root) if page.part != "Project"]
    asked = words or []
    if web:
        _serve(root, pages, port)
    elif not asked:
        _list(pages, as_json=as_json)
    elif page := _find(pages, asked):
        _show(page, as_json=as_json)
    else:
        _search(pages, asked, as_json=as_json)


def _find(pages: list[Page], words: list[str]) -> Page | None:
    name = words[0].removesuffix(".md") if len(words) == 1 else ""
    named = [page for page in pages if name and name in (page.name, page.file.stem)]
    return named[0] if len(named) == 1 else None


def _list(pages: list[Page], *, as_json: bool) -> None:
    if as_json:
        print_json({"pages": [{"page": page.name, "title": page.title} for page in pages]})
        return
    part = ""
    for page in pages:
        if page.part != part:
            part = page.part
            typer.echo(f"\n{part}")
        print_text(f"  {page.name}  {page.title}")
    typer.echo("\nrota docs WORDS searches; rota docs NAME shows a page; --web shows them all")


def _show(page: Page, *, as_json: bool) -> None:
    text = ALSO.sub("", page.text).rstrip()
    if as_json:
        print_json({"page": page.name, "title": page.title, "text": text})
    else:
        console().print(Markdown(text))


def _search(pages: list[Page], words: list[str], *, as_json: bool) -> None:
    found = search(pages, " ".join(words))[:SHOWN]
    if not found:
        raise RotaError(f"no page has the words {' '.join(words)}: rota docs lists the pages")
    passages = [(page, page.find_passage(words)) for page in found]
    if as_json:
        print_json(
            {
                "pages": [
                    {"page": page.name, "title": page.title, "passage": passage}
                    for page, passage in passages
                ]
            }
        )
        return
    for page, passage in passages:
        print_text(f"{page.name}  {page.title}")
        print_text(f"    {passage}")
    typer.echo(f"\nrota docs {found[0].name} shows the first")


def _serve(root: Path, pages: list[Page], port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = answer(root, pages, self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header(
                "Content-Security-Policy", "default-src 'self'; style-src 'unsafe-inline'"
            )
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        typer.echo(f"the documentation: http://127.0.0.1:{server.server_port}/", err=True)
        server.serve_forever()


def answer(root: Path, pages: list[Page], target: str) -> tuple[int, str, bytes]:
    """Return the status, the type and the body for a path: a page, a picture, or `/?q=words`."""
    url = urlsplit(target)
    asked = parse_qs(url.query).get("q", [""])[0]
    if asked:
        return 200, *_write("Search", _list_links(search(pages, asked)), asked)
    file = (root / (url.path.strip("/") or INDEX)).resolve()
    if file.suffix == ".md" and file.is_relative_to(root.resolve()) and file.is_file():
        text = ALSO.sub("", file.read_text(encoding="utf-8"))
        made = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
        return 200, *_write(file.stem, made)
    if file.suffix in KINDS and file.is_relative_to(root.resolve()) and file.is_file():
        return 200, KINDS[file.suffix], file.read_bytes()
    return 404, *_write("Not found", "<p>There is no such page.</p>")


def _list_links(pages: list[Page]) -> str:
    return "".join(
        f'<h3><a href="/{page.name}.md">{html.escape(page.title)}</a></h3>'
        f"<p>{html.escape(page.sentence)}</p>"
        for page in pages
    )


def _write(title: str, body: str, asked: str = "") -> tuple[str, bytes]:
    page = read_template("docs.html").replace("{title}", html.escape(title))
    page = page.replace("{asked}", html.escape(asked)).replace("{body}", body)
    return "text/html; charset=utf-8", page.encode()
