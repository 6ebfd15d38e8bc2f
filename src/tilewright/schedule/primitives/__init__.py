"""One file for each primitive: a pure function that locates, checks its needs, and rewrites."""
