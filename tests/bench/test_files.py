"""Each file of the benchmarks can still be begun: they are run by hand, and seldom."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.docs.reader import ROOT
from tests.support import forked

pytestmark = [pytest.mark.nightly, pytest.mark.system]

BENCH = ROOT / "bench"


def test_each_file_in_python_can_be_imported() -> None:
    names = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in sorted(BENCH.rglob("*.py"))
        # A site of Django is run in an environment of its own, and __main__ at once.
        if not {"django_site", "node_modules"} & set(file.parts) and file.stem != "__main__"
    ]
    assert len(names) > 50
    code = f"from importlib import import_module\nfor name in {names}:\n    import_module(name)"
    done = forked.run(["-c", code], env=os.environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="NO node: no file in JavaScript is read")
def test_each_file_in_javascript_can_be_read() -> None:
    for file in (*BENCH.glob("*.cjs"), *BENCH.glob("peers/**/*.cjs")):
        done = subprocess.run(
            ["node", "--check", file], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
