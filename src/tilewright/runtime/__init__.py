"""The runtime: loads an artifact and runs it; knows nothing of the compiler and ships alone."""
