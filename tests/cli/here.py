"""`rota` in this process: what a command does and prints, for a tenth of the cost of a process."""

from __future__ import annotations

import importlib
import io
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout

import pytest

from rota.cli import run
from rota.store.pools import close_all
from tests.support.cli import CommandLine, Ran


class Here(CommandLine):
    """A call is no process; `apart` and `start` fork one, for log lines, streams and signals."""

    def __call__(self, *arguments: str) -> Ran:
        out, err, before = io.StringIO(), io.StringIO(), set(sys.modules)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.directory)
            patch.setattr(sys, "path", [str(self.directory), *sys.path])
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.setattr(sys, "stdin", io.StringIO())
            for name, value in {"COLUMNS": "200", **self.environment}.items():
                patch.setenv(name, value)
            importlib.invalidate_caches()
            try:
                with redirect_stdout(out), redirect_stderr(err):
                    status = run(arguments)
            finally:
                close_all()
                _forget_projects(before)
        return Ran(status, out.getvalue(), err.getvalue())

    def apart(self, *arguments: str) -> Ran:
        """Run it in a process of its own."""
        return super().__call__(*arguments)


def _forget_projects(before: set[str]) -> None:
    """Let the next command import its project again, which may have changed."""
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(tempfile.gettempdir()):
            del sys.modules[name]
