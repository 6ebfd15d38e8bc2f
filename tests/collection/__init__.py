"""Trained models as others ship them: ONNX files of packages, compiled and compared.

    python -m tests.collection fetch          packages by name, the ONNX files in them
    python -m tests.collection check [NAME]   at fixed and at open sizes, beside onnxruntime
    python -m tests.collection time [NAME]    our time over onnxruntime's

Files lie outside the repository, in `$TILEWRIGHT_COLLECTION` or the user's cache folder. Nothing of
it is part of the test suite: it needs the network once, gigabytes of memory and half an hour.
"""
