"""The tests; `make test` runs them."""

from __future__ import annotations

import sys

# Of the tests and of Rota: otherwise every process of a run, and each Python that a test starts,
# compiles all of it again where the environment says PYTHONDONTWRITEBYTECODE. What a test starts
# keeps that setting, and writes no bytecode into the test's directories.
sys.dont_write_bytecode = False
