"""The C sources of the runtime and, once built, the shared library made of them."""
