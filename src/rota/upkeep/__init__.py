"""Recurring work: each part is a Service of every worker, and one pass of each begins a drain."""
