"""Measurements of a model that later plans use: `edgebuild tune`, and `edgebuild calibrate` on a chip.

`tune` runs the variants of the heaviest layers in the simulator and stores the fastest. One run measures a variant of
each layer, so the layer with the most variants determines the number of runs.
`calibrate` measures the steps of a model on the chip and fits the cost model to them.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...base.artifacts import Artifact, own_folder, publish
from ...base.cache import folder
from ...base.errors import EdgebuildError, fail
from ...base.request import ModelRequest
from ...base.target import Target, hal_dir, load_target
from ...base.workers import results
from ...clock.configs import ClockPlan, clock_plan
from ...clock.emit import clock_files, target_tree
from ...clock.tree import Gpio
from .. import choices
from ..clocked import power_model, works
from ..compile import compile_model, emit, plan_model
from ..energy import layer_cost
from ..formats import bound_file
from ..kernels import kernel_of, layer_name
from ..plan.choose import plan
from ..plan.search import Plan
from . import report_of, verify
from .harness import NAME, Builder, TooLarge, run_program, sources, write_sources

INSTRUCTIONS, CYCLES = "instructions", "cycles"  # what is measured, as `verify` names it
WORTH = 0.01  # least share of the model's total at which variants of a layer are tried


@dataclass(frozen=True)
class Trial:
    """A layer's variants, beginning with the estimates' choice, and measured instructions or cycles of each."""

    layer: str
    variants: tuple[str, ...]
    measured: dict[str, int] = field(default_factory=dict)

    @property
    def best(self) -> str:
        return min(self.measured, key=lambda v: (self.measured[v], self.variants.index(v)), default=self.variants[0])


def tune(
    request: ModelRequest, say: Callable[[str], None] = print, by: str = INSTRUCTIONS, scheduler: str | None = None
) -> dict[str, str]:
    """Measure variants, store the fastest where it is not the estimates' choice, and return those by layer.

    Nothing is stored if the model as a whole does not become faster. `by`: INSTRUCTIONS or CYCLES. `scheduler`: see
    `workers.results`. Raises EdgebuildError if the target has no simulator, if it has no cycle table and `by` is
    CYCLES, or if the cache is off.
    """
    if folder() is None:
        raise fail("the cache is off, and there the choices are kept", hints=["set EDGEBUILD_CACHE to a folder"])
    request = replace(request, choices=())
    counted, total = _count(request, compile_model(request), by)
    trials = [t for t in _trials(request) if counted.get(t.layer, 0) >= WORTH * total]
    turns = range(max((len(t.variants) for t in trials), default=0))
    tried = [{t.layer: t.variants[min(turn, len(t.variants) - 1)] for t in trials} for turn in turns]
    chosen_ones = [_choosing(request, wanted) for wanted in tried]
    for wanted, counted in zip(tried, results(partial(_counted, by), chosen_ones, scheduler), strict=True):
        for t in trials:
            if t.layer in counted:  # else a variant's scratch changed the plan, and the layer is in a rolled run
                t.measured[wanted[t.layer]] = counted[t.layer]
    fastest = {t.layer: t.best for t in trials if t.best != t.variants[0]}
    chosen = _choosing(request, fastest)
    _, better = _count(chosen, compile_model(chosen), by)
    for t in trials:
        shown = ", ".join(f"{v}{' *' if v == t.best else ''} {t.measured[v]:,}" for v in t.variants if v in t.measured)
        say(f"{t.layer}: {shown}")
    say(f"{total:,} {by} by the estimates' choice, {better:,} by the measured one")
    if fastest and better < total:
        choices.store(request, fastest)
        return fastest
    return {}


def _choosing(request: ModelRequest, wanted: dict[str, str]) -> ModelRequest:
    return replace(request, choices=tuple(f"{layer}={variant}" for layer, variant in sorted(wanted.items())))


def _counted(by: str, request: ModelRequest) -> dict[str, int]:
    """Measured value of each layer; empty if a variant's scratch does not fit."""
    try:
        artifacts = compile_model(request)
    except EdgebuildError:
        return {}
    try:
        return _count(request, artifacts, by)[0]
    except TooLarge:
        return {}


def _trials(request: ModelRequest) -> list[Trial]:
    """The layers that run whole and have more than one variant."""
    decided, trials = plan_model(request, load_target(request.target)), dict[str, Trial]()
    for section in decided.steps:
        if section.rolled is None:
            (op,), (form,) = section.ops, section.forms
            kernel = kernel_of(op, decided.graph, form)
            if kernel.alternatives:
                name = layer_name(kernel, op, decided.graph)
                trials[name] = Trial(name, tuple(dict.fromkeys(k.variant for k in (kernel, *kernel.alternatives))))
    return list(trials.values())


def _count(request: ModelRequest, artifacts: Sequence[Artifact], by: str) -> tuple[dict[str, int], int]:
    """Instructions or cycles of each layer that runs whole, summed over equal layers, and of all steps.

    Raises EdgebuildError if the program fails or differs from the reference, TooLarge if it does not fit.
    """
    target = load_target(request.target)
    decided = plan_model(request, target)
    with bound_file(request.source, request.bind) as model:
        library, reading = request.called_library, (request.shape, request.outputs)
        result = verify(
            model, target, artifacts, by_layer=True, by_cycles=by == CYCLES, library=library, reading=reading
        )
    if not result["equal"]:
        raise fail(f"differs from the reference by up to {result['max_abs_diff']}", file=str(request.source))
    counts: dict[str, int] = {}
    for section, step in zip(decided.steps, result["layers"], strict=True):
        if section.rolled is None:
            (op,), (form,) = section.ops, section.forms
            name = layer_name(kernel_of(op, decided.graph, form), op, decided.graph)
            counts[name] = counts.get(name, 0) + step[by]
    return counts, sum(step[by] for step in result["layers"])


# Flags that mark the two phases of decoupled kernels: gathering operands and computing.
PHASES = ("-DEB_ACCESS()=eb_profile_access()", "-DEB_COMPUTE()=eb_profile_compute()", "-include", "profile_model.h")
CALIBRATION = "calibration.yaml"


def profile(request: ModelRequest, output: Path, pin: str | None, supply_ms: int) -> dict[str, Any]:
    """Build the profiling firmware into the folder `output`; if the target has a simulator, run it.

    Returns `program` (path), number of `steps`, names of `clocks`, `ran_on` (a target; None: the user must run it on a
    chip) and `said` (its remarks). `pin`: a pin such as PB0 that is high while a step runs. `supply_ms`: milliseconds
    for which the model runs in each clock configuration, with the pin high. Raises EdgebuildError for a target other
    than a bare-metal Cortex-M, for streamed inputs or outputs, and for `supply_ms` without a clock tree.
    """
    request, target = replace(request, name=NAME), load_target(request.target)
    if target.firmware is None or not target.core.isa.startswith("arm"):
        raise fail(f"target {target.name} has no cycle counter that is known here", hints=["use a Cortex-M target"])
    if request.stream_input or request.stream_output:
        hints = ["leave --stream-input and --stream-output out"]
        raise fail("steps are measured of inputs and outputs that are there whole", hints=hints)
    if supply_ms and not target.clocks:
        raise fail(f"target {target.name} has no clock tree, so there are no configurations to go through")
    artifacts = emit(_marked(request, target), hashlib.sha256(request.source.read_bytes()).hexdigest())
    report = report_of(artifacts)
    clocks = clock_plan(target_tree(target), request.hse) if target.clocks else None
    files = clock_files(clocks) if clocks else ()
    header = _header(report, clocks, pin, supply_ms)
    own_folder(output)
    write_sources(output, target, artifacts, report, 1)
    publish((*files, header), output)
    with (output / "harness_model.h").open("a", encoding="utf-8") as file:
        file.write('#include "profile_model.h"\n')
    elf = _build(target, output, report, bool(files))
    figures = {"program": str(elf), "steps": len(report["schedule"]["steps"])}
    figures["clocks"] = [c.name for c in clocks.configs] if clocks else []
    if target.runner is None:
        return {**figures, "ran_on": None, "said": []}
    run_program(elf, target)
    rows = (output / "profile.csv").read_text(encoding="utf-8").splitlines()
    remarks = [line.removeprefix("# ") for line in rows if line.startswith("#")]
    return {**figures, "ran_on": target.name, "said": remarks}


def profile_words(figures: dict[str, Any]) -> str:
    """Text for the user about a result of `profile`."""
    clocks = f", {len(figures['clocks'])} clocks" if figures["clocks"] else ""
    lines = [f"{figures['program']}: {figures['steps']} steps{clocks}"]
    if figures["ran_on"] is None:
        lines.append("run it on the chip under a debugger with semihosting on: it writes profile.csv, for --fit")
    else:
        lines += [f"ran on {figures['ran_on']}", *figures["said"]]
    return "\n".join(lines) + "\n"


def _marked(request: ModelRequest, target: Target) -> Plan:
    """The plan with the phases of all decoupled steps marked in the code, for every clock at which they gather."""
    decided = plan_model(request, target)
    forms = [(s.ops[0].outputs[0], s.forms[0].granularity) for s in decided.steps if not s.rolled]
    marks = {name: (g, True) for name, g in forms if g}
    return plan(decided.graph, target, request, marks) if marks else decided


def _build(target: Target, folder: Path, report: dict[str, Any], clocks: bool) -> Path:
    with tempfile.TemporaryDirectory() as objects:  # objects in `folder` may be from other options
        for file in folder.iterdir():
            if file.is_file() and file.suffix != ".o":
                (Path(objects) / file.name).write_bytes(file.read_bytes())
        model, *rest = sources(target, report)
        hal = [hal_dir() / "harness/profile.c", hal_dir() / "src/semihost.c", hal_dir() / "src/mem.c"]
        all_sources = [*rest, *hal, *([Path("clock_config.c")] if clocks else [])]
        elf = Builder(target, Path(objects), bool(report.get("needs_libm"))).program(
            "profile", all_sources, {model: ("-include", str(hal_dir() / "harness/layers.h"), *PHASES)}
        )
        (folder / elf.name).write_bytes(elf.read_bytes())
    return folder / "profile.elf"


def _header(report: dict[str, Any], clocks: ClockPlan | None, pin: str | None, supply_ms: int) -> Artifact:
    steps = report["schedule"]["steps"]
    lines = [
        "/* What profile.c has to know of the model and the chip. */",
        "#ifndef PROFILE_MODEL_H",
        "#define PROFILE_MODEL_H",
        f"#define STEPS {len(steps)}",
        f"#define PROFILE_SUPPLY_MS {supply_ms}u",
        *([f"#define PROFILE_CONFIGS {' '.join(f'X({c.name})' for c in clocks.configs)}"] if clocks else []),
        *(_pin(clocks, pin) if pin else []),
        "void eb_profile_access(void);",
        "void eb_profile_compute(void);",
        "#endif",
        "",
    ]
    return Artifact("profile_model.h", "\n".join(lines).encode())


def _pin(clocks: ClockPlan | None, pin: str) -> list[str]:
    match = re.fullmatch(r"P([A-K])(\d|1[0-5])", pin.upper())
    if not match:
        raise fail(f"option 'pin': '{pin}' is not a pin", hints=["such as PB0"])
    gpio: Gpio | None = clocks.tree.registers.gpio if clocks and clocks.tree.registers else None
    if gpio is None:
        raise fail("option 'pin': where this target's ports are is unknown", hints=["add `gpio:` to its clock tree"])
    port = ord(match[1]) - ord("A")
    return [
        f"#define PROFILE_GPIO {gpio.base + port * gpio.stride:#x}u",
        f"#define PROFILE_GPIO_ENABLE {gpio.enable:#x}u",
        f"#define PROFILE_GPIO_PORT {port}u",
        f"#define PROFILE_GPIO_PIN {match[2]}u",
    ]


def fitted(request: ModelRequest, measurements: Path, log: Path | None, output: Path) -> tuple[str, dict[str, Any]]:
    """Fit the cost model to measurements of this model on its target; write calibration.yaml into the folder `output`.

    `request`: that of the profiled firmware; `log`: a record of the supply current. Returns the fit as text and as
    figures. Raises EdgebuildError for malformed measurements, and for a target without currents or timing.
    """
    target = load_target(request.target)
    model = power_model(target, replace(request, calibration=None))
    measured = list(layer_cost.read_measurements(measurements))
    if log:
        measured += layer_cost.read_supply_log(log, [c.name for c in model.plan.configs])
    decided = plan_model(request, target)
    step_works = works(decided, layer_cost.require_timing(model))
    calibration = layer_cost.fit(measured, step_works, model, str(measurements))
    publish((Artifact(CALIBRATION, layer_cost.calibration_text(calibration).encode()),), output, owned=False)
    words = (
        layer_cost.calibration_words(calibration, model, step_works, measured) + f"written: {output / CALIBRATION}\n"
    )
    return words, {**asdict(calibration), "file": str(output / CALIBRATION)}
