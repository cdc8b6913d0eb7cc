"""A project in Django with Rota in it, and the tests that Django's own runner runs there."""
