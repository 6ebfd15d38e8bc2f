"""Parameters that the run gives, of any value: right results or a clear error, never a crash.

    python -m tests.parameters --count 20000 [--only Pad] [--seed 1]

`subjects` lists operators whose pads, sizes, axes, counts or indices are inputs of the run, each
with draws and a NumPy reference; `guard` puts inputs beside pages that nobody may touch; `judge`
runs draws in a child process and compares.
"""
