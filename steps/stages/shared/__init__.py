"""Parts that several stages use: readers of common objects, gates for charts, plays and check pods, and tables of error texts."""
