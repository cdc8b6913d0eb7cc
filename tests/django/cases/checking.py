"""What `manage.py check` says."""

from __future__ import annotations

from typing import Any
from unittest import mock

from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.test import SimpleTestCase, TestCase, override_settings

from rota.integrations.django import RotaBackend, django_app
from rota.integrations.django.checks import check_schema, check_settings, check_types
from tests.django.shop.tasks import count_mail


def _list(found: list[Any]) -> list[tuple[str, str]]:
    return [(message.id, message.msg) for message in found]


class SettingsTest(SimpleTestCase):
    """Checks that need no database."""

    def test_this_project_is_in_order(self) -> None:
        assert run_checks() == []

    def test_a_wrong_setting_is_an_error(self) -> None:
        for given, text in [
            ({"relase": "7"}, "ROTA has no option 'relase'; it has alert_url, "),
            (["default"], "ROTA must be a dict of options, not ['default']"),
            ({"using": "missing"}, "connection is 'missing', and Django's DATABASES has no such"),
            ({"lease": "1ms"}, "the setting ROTA: App: lease must be"),
            ({"notify": "no"}, "the setting ROTA: App: notify must be True or False, not 'no'"),
        ]:
            with (
                override_settings(ROTA=given),
                mock.patch(
                    "rota.integrations.django.checks.find_app", django_app.find_app.__wrapped__
                ),
            ):
                [(id_, message)] = _list(check_settings())
            assert id_ == "rota.E001" and message.startswith(text), message

    def test_atomic_requests_on_another_database_is_a_warning(self) -> None:
        with mock.patch.dict(connections.settings["other"], ATOMIC_REQUESTS=True):
            [(id_, message)] = _list(check_settings())
            assert (id_, "on 'other' and not on 'default'" in message) == ("rota.W004", True)
            with mock.patch.dict(connections.settings["default"], ATOMIC_REQUESTS=True):
                assert check_settings() == []

    def test_a_type_without_key_and_effect_is_a_hint_of_deploy(self) -> None:
        found = check_types()
        assert ("rota.W001", True) in [(hint.id, "'welcome'" in hint.msg) for hint in found]
        assert "jobs.py:" in str(found[0].obj)
        assert {*_list(found)} < {*_list(run_checks(include_deployment_checks=True))}

    def test_a_backend_of_tasks_without_the_app_is_an_error(self) -> None:
        assert RotaBackend("default", {}).check() == []
        with mock.patch("django.apps.apps.is_installed", return_value=False):
            assert [message.id for message in RotaBackend("default", {}).check()] == ["rota.E003"]
            with self.assertRaisesMessage(ImproperlyConfigured, "TASKS names Rota, and INSTALLED"):
                count_mail.enqueue(1)


class SchemaTest(TestCase):
    """Checks that ask the database."""

    def test_the_schema_is_that_of_the_release(self) -> None:
        assert run_checks(databases=["default"]) == []

    def test_a_schema_that_is_behind_is_a_warning(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("delete from rota.definition where name = 'enqueue'")
        [(id_, message)] = _list(check_schema(databases=["default"]))
        assert id_ == "rota.W005" and "lacks this release's enqueue" in message
        assert check_schema(databases=["other"]) == []

    def test_a_schema_that_is_to_come_is_no_warning(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("drop schema rota cascade")
        assert check_schema(databases=["default"]) == []

    def test_a_schema_of_a_newer_release_is_an_error(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "insert into rota.migration (number, name, oldest_release, release) "
                "values (9000, '9000_later', '9.0', '9.0')"
            )
        [(id_, _)] = _list(check_schema(databases=["default"]))
        assert id_ == "rota.E002"
