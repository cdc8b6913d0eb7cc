"""Who does the work: claim, hold, execute, finish."""
