"""Operators of TFLite that networks are drawn from: a row each. With the layers, all names that our reader accepts.

A row takes the writer and one or two values, and tells its result in the type of activations.
"""

from .tflite_elements import ELEMENTWISE
from .tflite_moves import MOVES
from .tflite_norms import NORMS
from .tflite_signal import SIGNAL
from .tflite_sums import SUMS

ROWS = {**ELEMENTWISE, **MOVES, **NORMS, **SIGNAL, **SUMS}
