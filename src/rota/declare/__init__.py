"""What code declares: job types, their options, schedules. Knows no database."""
