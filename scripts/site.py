"""Makes the site of the documentation in site/, or in another directory: `make site`.

docs/README.md is its first page and says the order of the others: a list for each part. What a page
says of a file outside of docs/ is no link there, and what is generated is whole. The pages of the
part "Project" are not searched. A link or an anchor that leads nowhere fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rota.cli import pages  # noqa: E402
from scripts import reference, rules  # noqa: E402

DOCS = ROOT / "docs"
FROM_ROOT = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "LICENSE": "project/licence.md",
}
"""Files of the repository that are pages of the site."""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
START = "[Start with your first job](tutorial/1-first-job.md)"
"""The link of the first page that is a button."""
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def main(made: Path) -> int:
    between = made.with_name(f".{made.name}")  # what zensical reads
    shutil.rmtree(between, ignore_errors=True)
    for file in [*DOCS.rglob("*"), *(ROOT / name for name in FROM_ROOT)]:
        if file.is_file():
            write_page(file, between / "docs")
    (between / "docs" / "llms.txt").write_text(list_pages(), encoding="utf-8")
    (between / "docs" / "skill.txt").write_text(read_skill(), encoding="utf-8")
    (between / "zensical.toml").write_text(describe(), encoding="utf-8")
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--clean", "-f", str(between / "zensical.toml")]
    done = subprocess.run(command, check=False)
    if done.returncode == 0:
        shutil.rmtree(made, ignore_errors=True)
        (between / "site").rename(made)
        shutil.rmtree(between)
        print(f"the site is in {made}: python3 -m http.server --directory {made}")
    return done.returncode


def find_place(file: Path) -> str:
    """Return where a file of docs/, or one of FROM_ROOT, is below the pages of the site."""
    if file.parent == ROOT:
        return FROM_ROOT[file.name]
    return re.sub(r"(^|/)README\.md$", r"\1index.md", file.relative_to(DOCS).as_posix())


def write_page(file: Path, made: Path) -> None:
    """Write a page as it is on the site; copy another file."""
    place = made / find_place(file)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.suffix != ".md":
        shutil.copyfile(file, place)
        return
    text = reference.fill(file.read_text(encoding="utf-8"), is_whole=True)
    if file == DOCS / "project" / "rules.md":
        text = rules.write_page(is_whole=True)
    if file.name == "LICENSE":
        text = f"# Licence\n\n```text\n{text}```\n"
    # Words that people look for are on the page, because the search of the site reads no comment.
    text = pages.ALSO.sub(r"*Also called: \1.*", text)
    text = text.replace(START, f"{START}{{ .md-button .md-button--primary }}")
    parts = CODE.split(text)
    parts[::2] = (LINK.sub(lambda found: lead(found, file), part) for part in parts[::2])
    before = UNSEARCHED if find_place(file).startswith("project/") else ""
    place.write_text(before + "".join(parts), encoding="utf-8")


def lead(found: re.Match[str], page: Path) -> str:
    """Return a link as it is on the site: to a page of it, or the text alone."""
    text, target = found.groups()
    if re.match(r"[a-z]+:|#", target):
        return found[0]
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve()
    is_page = there.is_file() and (DOCS in there.parents or is_from_root(there))
    if not is_page:
        if there.exists():
            return text
        raise SystemExit(f"{page.relative_to(ROOT)}: there is no {target}")
    start = Path(find_place(page)).parent
    to = os.path.relpath(find_place(there), start)
    return f"[{text}]({to}{'#' + anchor if anchor else ''})"


def is_from_root(file: Path) -> bool:
    """Whether a file of the repository is a page of the site."""
    return file.parent == ROOT and file.name in FROM_ROOT


def list_parts() -> dict[str, dict[str, list[tuple[str, Path]]]]:
    """Return the parts, their groups, and the pages of each with their names, as docs/README.md has
    them."""
    parts: dict[str, dict[str, list[tuple[str, Path]]]] = {}
    for part, group, listed in pages.list_parts(DOCS):
        found = [(name[0].upper() + name[1:], (DOCS / path).resolve()) for name, path in listed]
        groups = parts.setdefault(part, {})
        groups.setdefault(group, []).extend(page for page in found if page[1].is_file())
    return parts


def describe() -> str:
    """Return zensical.toml with the pages in their order."""
    lines = ['nav = [\n    { "Rota" = "index.md" },']
    for title, groups in list_parts().items():
        listed = []
        for group, found in groups.items():
            named = ", ".join(f'{{ "{name}" = "{find_place(file)}" }}' for name, file in found)
            listed.append(f'{{ "{group}" = [{named}] }}' if group else named)
        lines.append(f'    {{ "{title}" = [{", ".join(listed)}] }},')
    text = (ROOT / "zensical.toml").read_text("utf-8")
    for path in ("src", "scripts/api.py"):  # the file is read in .site/
        text = text.replace(f'["{path}"]', f'["{ROOT / path}"]')
    return text.replace("[project]\n", "[project]\n" + "\n".join(lines) + "\n]\n", 1)


def list_pages() -> str:
    """Return llms.txt: each page with its first sentence, for who reads by machine."""
    lines = ["# Rota", "", "> A PostgreSQL-backed job queue and scheduler for Python.", ""]
    for title, groups in list_parts().items():
        lines += [f"## {title}", ""]
        for name, file in chain.from_iterable(groups.values()):
            place = find_place(file).removesuffix("index.md").removesuffix(".md")
            lines.append(f"- [{name}]({place}/): {first_sentence(file)}")
        lines.append("")
    return "\n".join(lines)


def read_skill() -> str:
    """Return the skill of the page for agents: how they find the cause of an incident."""
    page = (DOCS / "reference" / "agents.md").read_text("utf-8")
    return page.partition("### A skill for the agent")[2].split("```md\n")[1].split("```")[0]


def first_sentence(file: Path) -> str:
    """Return the first sentence of a page's text, without its marks."""
    text = re.sub(r"\A---\n.*?\n---\n", "", file.read_text("utf-8"), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        if re.match(r"[A-Z`\[*]", paragraph.strip()):
            plain = LINK.sub(lambda found: found[1], " ".join(paragraph.split()))
            return re.split(r"(?<=[.:])\s", plain)[0]
    return ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else ROOT / "site").absolute()))
