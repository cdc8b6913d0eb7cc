"""The only code that knows PostgreSQL."""
