"""Graph passes: each a function Graph → Graph; `pipeline` says in which order and why."""
