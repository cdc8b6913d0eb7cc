"""The benchmark: committed completions on durable settings, beside what the same server can do and beside a peer. `make bench` runs it."""
