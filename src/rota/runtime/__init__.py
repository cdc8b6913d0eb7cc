"""How a process lives: services, loops, child processes, logs. Knows no jobs."""
