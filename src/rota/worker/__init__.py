"""The worker: it claims jobs, keeps their leases, runs and finishes them."""
