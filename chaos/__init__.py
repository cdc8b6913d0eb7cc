"""The chaos run: real workers under kills, freezes, cut connections, server crashes and deploys, and a judge who reads the database afterwards.
`make chaos` runs it; docs/reliability.md says what is checked."""
