"""Tests that Django's runner runs: `python -m django test tests.django.cases.…`."""
