"""Django's own tests of tasks, of its sdist, with Rota as their backend."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.django.project import ROOT, Project, install_django
from tests.support.rules import rule

pytestmark = [pytest.mark.system, pytest.mark.slow]

WORDS = {
    "django.tasks.backends.immediate.ImmediateBackend": "tests.django.upstream.Immediate",
    "django.tasks.backends.dummy.DummyBackend": "tests.django.upstream.Dummy",
    "from django.tasks.backends.immediate import ImmediateBackend": (
        "from tests.django.upstream import Immediate as ImmediateBackend"
    ),
    "from django.tasks.backends.dummy import DummyBackend": (
        "from tests.django.upstream import Dummy as DummyBackend"
    ),
    "SimpleTestCase": "TestCase",
    "    available_apps = []\n": "",
}
"""The backends, and the database that a test may use."""
DIFFERENCES = {
    # A backend in a database: a plain call is refused in async code.
    "test_tasks.TaskTestCase.test_get_missing_result",
    "test_tasks.TaskTestCase.test_refresh_result",
    "test_dummy_backend.DummyBackendTestCase.test_get_missing_result",
    # These change a result in memory, and read it again from there.
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result",
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result_async",
    # What Django's backend cannot do.
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_get_result",
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_pass_run_after",
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_refresh_result",
}


def fetch_tests(python: str, place: Path) -> None:
    """Write Django's tests of tasks there. Skips the test where there is no package index."""
    ask = [python, "-c", "import django; print(django.__version__)"]
    wanted = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    pip = [python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-binary", "django", "-d", str(place), f"django=={wanted}"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"NOT TRIED: the sdist of Django {wanted} is not there: {done.stderr[-500:]}")
    [sdist] = place.glob("*.tar.gz")
    (place / "tasks").mkdir()
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            found = re.fullmatch(r"[^/]+/tests/tasks/(\w+\.py)", member.name)
            file = archive.extractfile(member) if found else None
            if found and file is not None:
                text = file.read().decode()
                for word, other in WORDS.items():
                    text = text.replace(word, other)
                (place / "tasks" / found[1]).write_text(text)


@rule("M20", "M50")
def test_django_s_own_tests_of_tasks_pass_but_for_the_differences_that_the_page_names(
    run_place: Path, empty_database: str, tmp_path: Path
) -> None:
    python = install_django(run_place)
    fetch_tests(python, tmp_path)
    paths = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{tmp_path}"}
    settings = {"DJANGO_SETTINGS_MODULE": "tests.django.upstream_settings"}
    files = [f"tasks.test_{name}" for name in ("tasks", "dummy_backend", "immediate_backend")]
    project = Project(empty_database, python, {**paths, **settings})
    printed = project.run("test", *files, status=1)
    ran = re.search(r"^Ran (\d+) tests", printed, re.MULTILINE)
    assert ran is not None and int(ran[1]) >= 70, printed
    failed = re.findall(r"^(?:FAIL|ERROR): \w+ \(tasks\.([\w.]+)\)", printed, re.MULTILINE)
    assert set(failed) == DIFFERENCES, printed
