"""onnxruntime in a process of its own: MODEL INPUTS.npz OUTPUTS.npz. Run as a script.

Some models make it end the whole process. INPUTS.npz has `vectors`, their number, and `v<vector>_i<input>`. OUTPUTS.npz
gets `v<vector>_o<output>` for every output that is a tensor of numbers. Ends with BAD_MODEL or BAD_INPUTS and
onnxruntime's own words.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

BAD_MODEL, BAD_INPUTS = 3, 4


def ended(status: int, problem: Exception) -> int:
    sys.stderr.write(str(problem).split("Status Message: ")[-1].strip())
    return status


def main(model: str, inputs: str, outputs: str) -> int:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # its exceptions have no class in common
        return ended(BAD_MODEL, problem)
    names = [(value.name, f"i{i}") for i, value in enumerate(session.get_inputs())]
    vectors, results = np.load(inputs), dict[str, Any]()
    for v in (f"v{n}" for n in range(vectors["vectors"])):
        try:
            values = session.run(None, {name: vectors[f"{v}_{key}"] for name, key in names})
        except Exception as problem:
            return ended(BAD_INPUTS, problem)
        numbers = {f"{v}_o{o}": x for o, x in enumerate(values) if isinstance(x, np.ndarray) and x.dtype.kind in "biuf"}
        results |= numbers
    np.savez(outputs, **results)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
