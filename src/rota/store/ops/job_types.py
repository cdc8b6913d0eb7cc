"""How job types are declared."""

from __future__ import annotations

from rota.store.driver import Operation, Query


def declare(types: str, release: str) -> Operation[int]:
    """Declare job types, a JSON array of what `job_type_declare` takes."""
    rows = yield Query("job_type_declare", {"types": types, "release": release})
    return rows[0][0]  # type: ignore[no-any-return]
