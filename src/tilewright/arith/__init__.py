"""Facts about index expressions.

`simplify` rewrites expressions and statements; `prove` answers questions; `region` covers what
accesses touch; all take the ranges of variables, or `simplify.Facts`, which also knows conditions.
Underneath: `terms` (sums of terms), `affine` (canonical forms, quotients, remainders, proofs),
`compare` (comparisons), `interval` (bounds), `rules` (algebra of values).
"""
