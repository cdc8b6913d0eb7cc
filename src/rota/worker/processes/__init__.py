"""Handlers with `process=True`: the processes that run them."""

from __future__ import annotations

from rota.worker.processes.pool import Processes

__all__ = ["Processes"]
