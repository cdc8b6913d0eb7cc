"""Counts what a reader of the house has to hold, and fails where a budget is broken.

Part of `make check`. `scripts/trace.py` counts the modules on the way of a job.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType

import rota
import rota.testing

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "rota"
SCHEMA = PACKAGE / "store" / "schema"

MOST = {
    "Python lines over 100 characters": 0,
    "SQL lines over 100 characters": 0,
    "class names that exist twice": 0,
    "functions named by a participle": 0,
    "SQL functions in migrations": 0,
    "SQL file names that exist twice": 0,
    "public members without a docstring": 0,
    # Of drivers, of calls that enqueue, and of what waits itself; 25 are wanted.
    "methods written twice, for plain code and to be awaited": 43,
    "files in the largest circle of imports, also for types": 3,
    # What a reader has to hold in all.
    "lines of src": 71_826,
    "lines of tests": 71_678,
}
"""The budgets."""

WIDTH_MAX = 100
SHOWN_MAX = 100
"""Places that are listed of a budget that is broken."""
URL = re.compile(r"https?://")
"""A line with a URL may be longer, for that cannot be broken."""
UNFORMATTED = ("tests/contract/sample.py", "tests/typing/")
"""What ruff leaves alone as well: a contract kept byte for byte, and errors on purpose."""
PARTICIPLES = """
    begun borne bound broken brought built caught chosen done drawn driven drunk eaten fallen felt
    found forgotten forsaken frozen given gone gotten grown heard held hidden kept known lain left
    lent lost made meant met paid risen said seen sent shaken shown sold sought spent spoken stolen
    stood struck stuck sunk sworn taken taught thought thrown told torn understood woken won worn
    written
"""
"""Those that do not end in -ed and are no verbs as well, as `read` and `put` are."""
VERBS = "bleed embed exceed feed heed need proceed seed shed speed succeed weed"
"""They end in -ed and are what a function should be."""
ASSERTED = "enqueued aenqueued"
"""Assertions of `rota.testing`, which read as in `rota.enqueued(welcome, user_id=42)`."""


def main() -> int:
    """Print each figure with its budget, and what stands behind those that are broken."""
    places = {
        "Python lines over 100 characters": wide_lines(python_files("src", "tests", *TOOLS)),
        "SQL lines over 100 characters": wide_lines(PACKAGE.rglob("*.sql")),
        "class names that exist twice": list(classes_that_exist_twice()),
        "functions named by a participle": list(participles()),
        "SQL functions in migrations": list(functions_in_migrations()),
        "SQL file names that exist twice": list(sql_files_that_exist_twice()),
        "public members without a docstring": [*members_without_docstring(rota, rota.testing)],
        "methods written twice, for plain code and to be awaited": list(twins()),
        "files in the largest circle of imports, also for types": largest_circle(),
    }
    counts = {name: len(found) for name, found in places.items()}
    counts["lines of src"] = count_lines(source_files())
    counts["lines of tests"] = count_lines(python_files("tests"))
    broken = [name for name, most in MOST.items() if counts[name] > most]
    for name, most in MOST.items():
        print(f"{counts[name]:6}  {name} (at most {most})")
    for name in broken:
        found = places.get(name, [])
        more = [f"… and {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else []
        print(f"\nOver the budget: {name}", *found[:SHOWN_MAX], *more, sep="\n  ", file=sys.stderr)
    return 1 if broken else 0


# Files

TOOLS = ("scripts", "bench", "chaos")


def python_files(*folders: str) -> Iterator[Path]:
    """The Python files of these folders, in order."""
    return chain.from_iterable(sorted((ROOT / folder).rglob("*.py")) for folder in folders)


def source_files() -> list[Path]:
    """The Python and SQL files of the package."""
    return sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql")])


@cache
def read(file: Path) -> str:
    """The text of a file."""
    return file.read_text(encoding="utf-8")


def place(file: Path, line: int | None = None) -> str:
    """Where to look, as an editor takes it."""
    name = file.relative_to(ROOT).as_posix()
    return name if line is None else f"{name}:{line}"


# Figures: each a list of the places that count


def count_lines(files: Iterable[Path]) -> int:
    """The sum of their lines."""
    return sum(len(read(file).splitlines()) for file in files)


def wide_lines(files: Iterator[Path]) -> list[str]:
    """Each line that is too wide."""
    return [
        place(file, number)
        for file in files
        if not place(file).startswith(UNFORMATTED)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDTH_MAX and not URL.search(line)
    ]


def classes_that_exist_twice() -> Iterator[str]:
    """Each class name of the package that is given more than once, with its places."""
    places: dict[str, list[str]] = defaultdict(list)
    for file, node in nodes(python_files("src")):
        if isinstance(node, ast.ClassDef) and node.name != "Meta":  # the options of a model
            places[node.name].append(place(file, node.lineno))
    return (f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1)


def participles() -> Iterator[str]:
    """Each function that is named by what was done: it is a verb, and its result is a noun."""
    for file, node in nodes(python_files("src", *TOOLS)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_property(node):
            continue
        if is_participle(node.name.strip("_").partition("_")[0]):
            yield f"{place(file, node.lineno)}: {node.name}"


def is_participle(word: str) -> bool:
    """Whether a word is a past participle and not also a verb."""
    ends_in_ed = word.endswith("ed") and word not in (*VERBS.split(), *ASSERTED.split())
    return ends_in_ed or word in PARTICIPLES.split()


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is read or set as data."""
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any("property" in name or name.endswith(".setter") for name in decorators)


def nodes(files: Iterator[Path]) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the syntax trees of these files."""
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
        yield from ((file, node) for node in ast.walk(tree))


def twins() -> Iterator[str]:
    """Each function with a twin of the same place that is awaited: `run` and `arun`. Those that
    `client/both.py` makes are not written twice."""
    for file, node in nodes(python_files("src")):
        if not isinstance(node, ast.ClassDef | ast.Module):
            continue
        plain = [function for function in node.body if isinstance(function, ast.FunctionDef)]
        awaited = {
            function.name for function in node.body if isinstance(function, ast.AsyncFunctionDef)
        }
        for function in plain:
            bare = function.name.removeprefix("_")
            if f"{'_' * (function.name != bare)}a{bare}" in awaited:
                yield f"{place(file, function.lineno)}: {function.name}"


def members_without_docstring(*modules: ModuleType) -> Iterator[str]:
    """Each public function and class of these modules, and of those that they name, without a
    docstring; and of each class its methods, properties and fields."""
    for module in modules:
        own = [name for name, value in vars(module).items() if is_own(name, value, module)]
        for name in getattr(module, "__all__", own):
            member = getattr(module, name)
            if inspect.ismodule(member):
                yield from members_without_docstring(member)
            elif inspect.isclass(member):
                yield from (
                    f"{member.__module__}.{name}: {lacks}" for lacks in silent_members(member)
                )
            elif inspect.isroutine(member) and not inspect.getdoc(member):
                yield f"{member.__module__}.{name}"


def is_own(name: str, member: object, module: ModuleType) -> bool:
    """Whether a public name of a module is not imported by it."""
    return not name.startswith("_") and getattr(member, "__module__", None) == module.__name__


def silent_members(kind: type) -> list[str]:
    """The public members of a class without a docstring, and its own name if it has none itself.
    For what overrides a member, the docstring of that is enough."""
    package = kind.__module__.partition(".")[0]
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == package]
    members = {
        name: bool(inspect.getdoc(getattr(kind, name)))
        for base in bases
        for name, member in vars(base).items()
        if not inspect.ismemberdescriptor(member)
    }
    members |= sorted(chain.from_iterable(map(fields_of, bases)))  # True comes last, and wins
    return [name for name, is_told in members.items() if not is_told and not name.startswith("_")]


def fields_of(kind: type) -> Iterator[tuple[str, bool]]:
    """The fields that a class annotates or its `__init__` sets, and whether each has a docstring
    below; first of all, the class itself."""
    [tree] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    yield kind.__name__, ast.get_docstring(tree) is not None
    inits = [
        function.body
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    ]
    bodies = (pairwise([*body, ast.Pass()]) for body in (tree.body, *inits))
    for node, below in chain.from_iterable(bodies):
        is_told = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        match node:
            case ast.AnnAssign(ast.Name(name)) if node in tree.body:
                yield name, is_told
            case ast.AnnAssign(ast.Attribute(ast.Name("self"), name)) | ast.Assign(
                [ast.Attribute(ast.Name("self"), name)]
            ):
                yield name, is_told


def functions_in_migrations() -> Iterator[str]:
    """Each function that a migration makes."""
    for file in sorted((SCHEMA / "migrations").glob("*.sql")):
        text = file.read_text(encoding="utf-8")
        for found in re.finditer(r"(?im)^create (?:or replace )?function", text):
            yield place(file, text.count("\n", 0, found.start()) + 1)


def sql_files_that_exist_twice() -> Iterator[str]:
    """Each name of an SQL file that stands in more than one folder, with its places."""
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.sql")):
        places[file.name].append(place(file))
    return (f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1)


def largest_circle() -> list[str]:
    """The files of the largest group that import each other, directly or not, also for types."""
    files = {module_of(file): file for file in python_files("src")}
    known = {name: imports_of(name, file, files) for name, file in files.items()}
    reached: dict[str, set[str]] = {}
    for name in known:
        found, ahead = set[str](), [name]
        while ahead:
            new = known[ahead.pop()] - found
            found |= new
            ahead += new
        reached[name] = found
    circles = [
        [other for other in reached[name] if name in reached[other]] or [name] for name in known
    ]
    return sorted(place(files[name]) for name in max(circles, key=len))


def module_of(file: Path) -> str:
    """The name by which a file is imported."""
    parts = file.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(name: str, file: Path, files: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports: at its top, for types, or in a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {module if module in files else node.module for module in inner}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module in files and module != name}


if __name__ == "__main__":
    sys.exit(main())
