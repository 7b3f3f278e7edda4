"""Script in its own process: pass a checked network to the exporter of its framework, which writes `net.onnx`.

`exporter_process.py torch|keras FOLDER` runs in the Python where the framework is installed. FOLDER has the files that
`exporting.py` wrote. Nothing is unpickled. The script imports nothing of this package.
"""

from __future__ import annotations

import io
import json
import logging
import operator
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

REFUSED = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen",
           "pty.spawn", "socket.connect", "socket.bind", "socket.sendto")  # fmt: skip
CHANGES = ("os.remove", "os.rename", "os.chmod", "os.link", "os.symlink", "os.truncate", "shutil.rmtree")
MAX_BYTES, MAX_WEIGHTS = 512 << 20, 100_000  # most bytes of weights; most weights and groups of them
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def install_sandbox(folder: Path) -> None:
    """Install an audit hook: from now on PermissionError for new processes, network, and writes outside `folder`."""
    home = os.path.realpath(folder) + os.sep

    def writes(path: Any, mode: str | None, flags: int | None) -> bool:
        return bool((flags or 0) & WRITES) or bool(set(mode or "") & set("wax+"))

    def check(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and (isinstance(args[0], int) or args[0] == os.devnull or not writes(*args)):
            return
        if event not in (*REFUSED, *CHANGES, "open"):
            return
        if event not in REFUSED and os.path.realpath(os.fsdecode(args[0])).startswith(home):
            return
        raise PermissionError(f"an exporter may not do this: {event} {args[:1]!r:.100}")

    sys.addaudithook(check)


def torch_network(folder: Path) -> None:
    """Build a module of ATen operators from `program.json` and export it to ONNX."""
    import torch
    import torch.onnx  # before `install_sandbox`, because imports may write files and start programs

    program = json.loads((folder / "program.json").read_text(encoding="utf-8"))
    graph, module, values = torch.fx.Graph(), torch.nn.Module(), dict[str, Any]()
    for number, name in enumerate(program["inputs"]):
        values[name] = graph.placeholder(f"input_{number}")
    with np.load(folder / "constants.npz", allow_pickle=False) as constants:
        for number, name in enumerate(program["constants"]):
            module.register_buffer(f"constant_{number}", torch.from_numpy(constants[str(number)].copy()))
            values[name] = graph.get_attr(f"constant_{number}")
    for node in program["nodes"]:
        result = graph.call_function(*_call(torch, node, values))
        many = len(node["outputs"]) > 1 or node["several"]
        for number, name in enumerate(node["outputs"]):
            values[name] = graph.call_function(operator.getitem, (result, number)) if many else result
    graph.output(tuple(values[name] for name in program["outputs"]))
    example = tuple(torch.zeros(p["shape"], dtype=getattr(torch, p["dtype"])) for p in program["inputs"].values())
    install_sandbox(folder)
    program = torch.onnx.export(torch.fx.GraphModule(module, graph).eval(), example, dynamo=True, verbose=False,
                             input_names=list(program["inputs"]), output_names=program["outputs"])  # fmt: skip
    program.save(str(folder / "net.onnx"), external_data=False)


def _call(
    torch: Any, node: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The operator of a node, and its positional and keyword arguments in the order of the operator's schema."""
    name, _, overload = node["target"].partition(".")
    aten = getattr(getattr(torch.ops.aten, name, None), overload, None)
    if not isinstance(aten, torch._ops.OpOverload):
        raise ValueError(f"this PyTorch has no operator aten.{node['target']}")

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return values[value["of"]] if "of" in value else getattr(torch, value["dtype"])
        return [of(one) for one in value] if isinstance(value, list) else value

    args, named, given = list[Any](), dict[str, Any](), dict(node["arguments"])
    for argument in aten._schema.arguments:
        if argument.name in given and not argument.kwarg_only and not named:
            args.append(of(given.pop(argument.name)))
        elif argument.name in given:
            named[argument.name] = of(given.pop(argument.name))
        elif not argument.kwarg_only and argument.has_default_value() and not named:
            args.append(argument.default_value)
    if given:
        raise ValueError(f"aten.{node['target']} has no argument {min(given)}")
    return aten, tuple(args), named


def keras_network(folder: Path) -> None:
    """Export `net.keras`, whose list of layers `exporting.py` has checked, to ONNX."""
    import keras

    install_sandbox(folder)
    check_weights(folder / "net.keras")
    network = keras.saving.load_model(folder / "net.keras", compile=False, safe_mode=True)
    zeros = [keras.ops.zeros([n or 1 for n in x.shape], x.dtype) for x in network.inputs]
    network(zeros if len(zeros) > 1 else zeros[0])  # Keras only exports networks that were called
    network.export(str(folder / "net.onnx"), format="onnx", verbose=False)


def check_weights(archive: Path) -> None:
    """Raise ValueError for weights in other files, and for more than MAX_BYTES bytes or MAX_WEIGHTS objects."""
    import h5py

    with zipfile.ZipFile(archive) as parts, h5py.File(io.BytesIO(parts.read("model.weights.h5")), "r") as weights:
        todo, total, seen = [weights], 0, 0
        while todo:
            for name in (group := todo.pop()):
                if (seen := seen + 1) > MAX_WEIGHTS or not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise ValueError(f"weight '{name[:60]}' is a link, or one of more than {MAX_WEIGHTS}")
                if isinstance(one := group[name], h5py.Group):
                    todo.append(one)
                elif one.external or one.is_virtual or (total := total + one.nbytes) > MAX_BYTES:
                    text = f"is in another file, or the weights have over {MAX_BYTES} bytes"
                    raise ValueError(f"weight '{name[:60]}' {text}")


NETWORKS: Mapping[str, Callable[[Path], None]] = {"torch": torch_network, "keras": keras_network}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    try:
        NETWORKS[sys.argv[1]](Path(sys.argv[2]))
    except Exception as problem:  # frameworks raise many classes
        cause: BaseException = problem
        while cause.__cause__ is not None:  # the first cause is the step that failed
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        sys.exit(f"\n{type(cause).__name__}: {(lines or [''])[0][:300]}")
