"""Makes .venv and installs what is missing: `run` for Rota and its embedded PostgreSQL, `site` for
what makes the site of the documentation, `dev` for all that and the tools.

It is cheap when nothing changed: a stamp beside the installed packages names the pyproject.toml,
the Python and the path that they were installed from. It is safe when two start at once: one waits
for the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYPROJECT = ROOT / "pyproject.toml"


class Refused(Exception):
    """The installation cannot be made here; the message is one line with the reason."""


def main(level: str) -> int:
    try:
        with _only_one():
            bootstrap(level)
    except Refused as refusal:
        print(f"bootstrap: {refusal}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def bootstrap(level: str) -> None:
    """Bring .venv up to `level`, and do only what is missing."""
    needed = ["run", "site", "dev"] if level == "dev" else [level]
    missing = [name for name in needed if not _is_stamped(name)]
    if not missing:
        return
    made = _venv_made()
    try:
        for name in missing:
            _install(name)
    except BaseException:
        if made:
            shutil.rmtree(VENV, ignore_errors=True)
        raise


@contextmanager
def _only_one() -> Iterator[None]:
    # This file itself is the lock: it outlives .venv, and the kernel releases it however we
    # end.
    with Path(__file__).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("bootstrap: another one is at work in .venv; waiting for it", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _venv_made() -> bool:
    """Make .venv unless a usable one exists; return whether this call made it."""
    if _identity(VENV / ".made") == _describe_python() and _has_pip():
        return False
    if VENV.is_symlink():
        raise Refused(".venv is a link, and what it leads to is not to be emptied; remove the link")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Refused(f"this Python cannot make a virtual environment: {_advice()}")
    try:
        # Not sys.executable, which inside an activated .venv is the very file that --clear removes.
        command = [
            getattr(sys, "_base_executable", sys.executable),
            "-m",
            "venv",
            "--clear",
            str(VENV),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not _has_pip():
            said = (done.stderr + done.stdout).strip()
            reason = _advice() if not said or "ensurepip" in said else said.rpartition("\n")[2]
            raise Refused(f"no virtual environment could be made: {reason}")
        (VENV / ".made").write_text(_describe_python())
    except BaseException:
        shutil.rmtree(VENV, ignore_errors=True)
        raise
    return True


def _advice() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        "the module venv, ensurepip or pip is missing (Debian, Ubuntu: apt-get install "
        f"python{version}-venv)"
    )


def _install(level: str) -> None:
    project = tomllib.loads(PYPROJECT.read_text())
    if level == "run":
        print("bootstrap: installing Rota, and what its demo needs, into .venv", file=sys.stderr)
        wanted = ["--editable", f"{ROOT}[demo]"]
    else:
        # Without Rota itself, so that a demo that is running never finds it half installed.
        what = "what makes the site" if level == "site" else "the tools for tests and checks"
        print(f"bootstrap: installing {what} into .venv", file=sys.stderr)
        wanted = project["dependency-groups"][level]
    stamp = VENV / f".stamp-{level}"
    stamp.unlink(missing_ok=True)
    # Compiling every module of every package takes longer than compiling the imported ones on
    # demand.
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    done = subprocess.run([str(_python()), "-m", "pip", "install", *options, *wanted], check=False)
    if done.returncode != 0:
        raise Refused(f"pip could not install what {PYPROJECT.name} names; its own words are above")
    stamp.write_text(_stamp())


def _is_stamped(level: str) -> bool:
    return _identity(VENV / f".stamp-{level}") == _stamp() and _python().exists()


def _stamp() -> str:
    return json.dumps(
        {
            "made_by": _describe_python(),
            "pyproject": hashlib.sha256(PYPROJECT.read_bytes()).hexdigest(),
        }
    )


def _describe_python() -> str:
    # base_prefix is the same inside and outside .venv; the path counts because scripts in .venv
    # name it.
    return json.dumps({"python": sys.version, "prefix": sys.base_prefix, "place": str(VENV)})


def _identity(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _has_pip() -> bool:
    command = [str(_python()), "-m", "pip", "--version"]
    return (
        _python().exists()
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def _python() -> Path:
    return VENV / "bin" / "python"


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["site"], ["dev"]):
        sys.exit("usage: scripts/bootstrap run|site|dev")
    sys.exit(main(sys.argv[1]))
