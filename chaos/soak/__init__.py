"""The soak: the app, the ledger and the judge of chaos, for hours.

Two workers run every feature while one of them is killed and deployed again and again. The
database's clock is moved through weeks, so that partitions come and go. What grows is measured.
`make soak HOURS=2` runs it; soak.md says what it checks.
"""
