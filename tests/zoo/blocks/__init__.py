"""Architectures of `others.py` that no installed library has, a file for each kind.

Each is a small module that follows its paper's structure, at a size that runs in milliseconds to a
second.
"""
