"""What the compiler always makes of a scheduled function: blocks → loops → flat → vector."""
