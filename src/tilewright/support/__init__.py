"""What every room may use; knows nothing of compilers."""
