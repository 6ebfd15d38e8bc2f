"""Models times engines times threads, measured side by side: `python -m benchmarks --help`."""
