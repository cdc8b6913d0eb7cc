"""Rota beside other queues: one server, one run, rounds in turns, a fresh database each.

`make peers` runs it. Modules that a peer's Python imports, `ledger`, `harness`, `system` and those
of `systems`, need the standard library alone.
"""
