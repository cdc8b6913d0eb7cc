"""The chaos run: real workers under kills, freezes, cut connections, server crashes and deploys.

A judge reads the database afterwards. `make chaos` runs it; reliability.md lists the checks.
"""
