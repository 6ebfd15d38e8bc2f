"""One record for each kind of machine: what compiling for it takes."""
