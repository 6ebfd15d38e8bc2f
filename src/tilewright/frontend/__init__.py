"""Model formats: each module reads one and writes a Graph; no optimisation happens here."""
