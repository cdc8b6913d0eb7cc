"""`rota demo`: real jobs on real rows, and for each promise the SELECT that shows that it is
kept."""
