"""Small programs in text for the tests of marks: what may run at once and what may not."""

COPY = """\
def f(A: f32[4, 6], B: f32[4, 6]):
    for i in serial(0, 4):
        for j in serial(0, 6):
            with block("B"):
                vi = spatial(4, i)
                vj = spatial(6, j)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj]
"""
SAME_ELEMENT = """\
def f(A: f32[4, 6], B: f32[6]):
    for i in serial(0, 4):
        for j in serial(0, 6):
            with block("B"):
                vj = spatial(6, j)
                reads(A[3, vj])
                writes(B[vj])
                B[vj] = A[3, vj]
"""
SHIFT = """\
def f(A: f32[6], B: f32[6], T: f32[6]):
    for i in serial(0, 5):
        with block("T"):
            vi = spatial(5, i)
            reads(A[vi])
            writes(T[vi])
            T[vi] = A[vi]
        with block("B"):
            wi = spatial(5, i)
            reads(T[wi + 1 - 1])
            writes(B[wi])
            B[wi] = T[wi + 1 - 1]
"""
ELSEWHERE = SHIFT.replace("T[wi + 1 - 1]", "T[4 - wi]")
PLAIN = """\
def f(A: f32[6], B: f32[6]):
    for i in serial(0, 6):
        B[i] = A[i]
"""
RECURRENCE = """\
def f(A: f32[7], B: f32[7]):
    for i in serial(0, 6):
        B[i + 1] = B[i]
"""
CARRIED = """\
def f(A: f32[6], B: f32[6]):
    T = alloc(f32[1], "global")
    for i in serial(0, 6):
        with block("T", where=i < 1):
            v0 = spatial(1, i)
            reads(A[v0])
            writes(T[v0])
            T[v0] = A[v0]
        with block("B"):
            vi = spatial(6, i)
            reads(T[0])
            writes(B[vi])
            B[vi] = T[0]
"""
SYMBOLIC = COPY.replace("6", "n").replace("B: f32[4, n])", "B: f32[4, n], n: i64)")
DEPENDENT = {  # programs whose loop "i" must run in order
    "one element": SAME_ELEMENT,
    "read in another iteration": ELSEWHERE,
    "read in the next iteration": RECURRENCE,
    "carried in a buffer": CARRIED,
}
