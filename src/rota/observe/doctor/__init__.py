"""Checks that find problems and say how to fix them."""
