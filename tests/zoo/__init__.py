"""Well-known small networks as ONNX files with random weights, for tests and benches."""
