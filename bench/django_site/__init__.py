"""A site of Django with one of three backends of its tasks; BACKEND in the environment names it."""
