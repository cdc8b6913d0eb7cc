"""Django's own tests of tasks, of its sdist, with Rota as their backend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.django.project import ROOT, Project, find_environment, find_python
from tests.support.rules import rule

pytestmark = [pytest.mark.nightly, pytest.mark.system]

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


@rule("M20", "M50")
def test_django_s_own_tests_of_tasks_pass_but_for_the_differences_that_the_page_names(
    empty_database: str, tmp_path: Path
) -> None:
    place = find_environment("django-6.1")
    (tmp_path / "tasks").mkdir()
    for file in (place / "tasks").iterdir():
        text = file.read_text()
        for word, other in WORDS.items():
            text = text.replace(word, other)
        (tmp_path / "tasks" / file.name).write_text(text)
    paths = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{tmp_path}"}
    settings = {"DJANGO_SETTINGS_MODULE": "tests.django.upstream_settings"}
    names = ("tasks", "dummy_backend", "immediate_backend")
    project = Project(empty_database, find_python("django-6.1"), {**paths, **settings})
    printed = project.run(f"test {' '.join(f'tasks.test_{name}' for name in names)}", status=1)
    ran = re.search(r"^Ran (\d+) tests", printed, re.MULTILINE)
    assert ran is not None and int(ran[1]) >= 70, printed
    failed = re.findall(r"^(?:FAIL|ERROR): \w+ \(tasks\.([\w.]+)\)", printed, re.MULTILINE)
    assert set(failed) == DIFFERENCES, printed
