"""Operators that no strategy was written for: the default schedule and a tuned one beside the
machine's limit, NumPy and PyTorch."""
