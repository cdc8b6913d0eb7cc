"""The benchmark: committed completions on durable settings, beside the same server's limit and a
peer.

`make bench` runs it.
"""
