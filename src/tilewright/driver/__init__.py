"""The only package that sees everything: the public API, the command line, compiling a model."""
