"""Rota in other frameworks."""
