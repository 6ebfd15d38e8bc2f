"""Models of a fuzzer that others wrote (`nnsmith`), compiled from PyTorch and from ONNX.

`python -m tests.nnsmith --count 3000` draws models, compiles each and compares it with eager
PyTorch, beyond what rounding explains; the file's operators one by one say whether the exporter is
to blame. It needs `pip install tilewright[fuzz]`; nothing of it but the comparison is part of the
test suite.
"""
