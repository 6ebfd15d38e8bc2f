"""The official backend suite of the onnx package, run on compiled models."""
