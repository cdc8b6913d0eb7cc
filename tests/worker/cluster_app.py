"""The App of `cluster_jobs`, which a process on the cluster imports too."""

from __future__ import annotations

import rota
from tests.worker.cluster_jobs import jobs

app = rota.App(jobs=[jobs])
