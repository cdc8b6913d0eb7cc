"""Handlers with `process=True`: the processes that run them."""
