"""`rota demo`: real work on real rows, each promise beside the SELECT that shows it kept."""
