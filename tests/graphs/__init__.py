"""Random graphs and model files: hypothesis strategies, and how to draw a batch of examples from one.

    single_ops(kind)    IR graphs of one op of each kind in the registry
    covering(kind, most) a batch of the same that together has each form of the kind
    thrown(kind, count) a batch of the same, whose choices do not depend on each other
    small_graphs()      IR graphs of 2 to 10 ops, chains and branches
    tflite_files(name)  int8 .tflite files of one operator, as bytes
    tiny_tflite()       one model that never changes
    onnx_models()       small ONNX models in NCHW, float or quantised by onnxruntime

Structure is drawn, and so can be shrunk; the numbers in tensors come from a seed that is drawn.
"""

from __future__ import annotations

from . import front as front  # its kinds
from .cells import covering
from .chains import small_graphs
from .layers import lstm
from .onnx_models import LAYERS, feeds, onnx_layers, onnx_models, powers_of_two, quantised
from .single import KINDS, single_ops, thrown
from .source import described, edges, examples, random_inputs
from .tflite_curves import curve
from .tflite_models import OPERATORS, tflite_files
from .tflite_reductions import extreme
from .tflite_tables import APPROXIMATE
from .tiny import Tiny, tiny_tflite
from .wide import plain_pointwise

__all__ = [
    "APPROXIMATE", "KINDS", "LAYERS", "OPERATORS", "Tiny", "covering", "curve", "described", "edges", "examples",
    "extreme", "feeds", "lstm", "onnx_layers", "onnx_models", "plain_pointwise", "powers_of_two", "quantised",
    "random_inputs", "single_ops", "small_graphs", "tflite_files", "thrown", "tiny_tflite",
]  # fmt: skip
