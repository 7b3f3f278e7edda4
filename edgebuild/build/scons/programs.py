"""Methods of the SCons tool for linked programs and for tests: env.EdgeBuildReport, env.EdgeBuildTest.

Code that the methods of the SCons tool share: errors at the line of a call, and the action that writes a text.
"""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from typing import Any

from SCons.Action import Action
from SCons.Errors import StopError

from edgebuild.base.artifacts import write_atomic
from edgebuild.base.errors import EdgebuildError, did_you_mean
from edgebuild.base.options import parse_size
from edgebuild.base.target import load_target
from edgebuild.build.check import spelled

HERE = os.path.dirname(__file__)


def wrong(text: str) -> StopError:
    """An error with the line of the SConscript. After a UserError SCons prints the innermost line, in this package."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(HERE) and f"{os.sep}SCons{os.sep}" not in frame.filename:
            return StopError(f"{frame.filename}:{frame.lineno}: {text}")
    return StopError(text)


def wrong_file(where: str, error: EdgebuildError) -> StopError:
    """Errors in a file that a call names, at their lines in that file; others with the line of the SConscript."""
    if all(os.path.isfile(d.file) for d in error.diagnostics):
        return StopError(str(error))
    return wrong("\n".join(f"{where}: {spelled(d)}" for d in error.diagnostics))


def write_value(target: list[Any], source: list[Any], env: Any) -> None:
    """The action that writes the text of a Value."""
    write_atomic(Path(target[0].abspath), source[0].read().encode())


Environment = Any  # SCons has no types
Node = Any
BUDGETS = ("FLASH_BUDGET", "RAM_BUDGET", "STACK_BUDGET")
EXPECTED = {"MIN_ACCURACY": r"0|1|[01]?\.\d+", "MAX_INSTRUCTIONS": r"\d+"}


def requests_of(env: Environment, nodes: list[Node]) -> list[Node]:
    """The requests that objects of models, drivers and clocks come from, also where they lie in libraries."""
    requests: dict[Node, None] = {}
    open_, seen = [n for n in nodes if hasattr(n, "sources")], set[Node]()
    while open_:
        node = open_.pop(0)
        if node not in seen:
            seen.add(node)
            if request := getattr(node.attributes, "edgebuild_request", None):
                requests[request] = None
            open_ += [*node.sources]
    return list(requests)


def report(env: Environment, program: Any, ENTRY: str = "", **budgets: Any) -> Node:
    """Report what a program takes of flash, RAM and stack: `scons NAME_size` prints it, `scons NAME_report` writes it.

    FLASH_BUDGET, RAM_BUDGET, STACK_BUDGET: more is an error of the link. ENTRY: the function where the stack begins.
    The report is NAME_size.json, and NAME.spdx.json, a bill of materials. Returns the two files.
    """
    node = env.arg2nodes(program, env.fs.File)[0]
    name = os.path.basename(str(node))
    where = f"EdgeBuildReport('{name}')"
    if unknown := [o for o in budgets if o not in BUDGETS]:
        raise wrong(f"{where}: error: unknown option {unknown[0]}{did_you_mean(unknown[0], [*BUDGETS, 'ENTRY'])}")
    if not node.has_builder():
        raise wrong(f"{where}: error: nothing makes this program; env.Program(...) comes first")
    requests = requests_of(env, [*node.sources, *env.Flatten(node.get_env().get("LIBS", []))])
    folder = node.dir.Dir("edgebuild")
    lines = [os.path.relpath(r.abspath, folder.abspath) for r in requests]
    listed = env.Command(
        folder.File(f"{name}.requests"), env.Value("".join(f"{line}\n" for line in lines)), Action(write_value, None)
    )
    words = ["$EDGEBUILD", "size", node.path, "--requests", listed[0].path, *(["--entry", ENTRY] if ENTRY else [])]
    limits = []
    for option in BUDGETS:
        if (value := budgets.get(option)) is not None:
            try:
                parse_size(option, value)
            except EdgebuildError as error:
                raise wrong(f"{where}: {error}") from None
            limits += [f"--{option.partition('_')[0].lower()}", str(value)]
    if limits:
        last = folder.File(f"{name}.last.json")
        check = [*words, "--quiet", "--last", last.path, *limits]
        env.Depends(node, listed)
        env.AddPostAction(node, Action([check], f"Checking the size of {name}"))
        env.Clean(node, last)
    files = [node.dir.File(f"{name}_size.json"), node.dir.File(f"{name}.spdx.json")]
    bill = ["$EDGEBUILD", "sbom", "--requests", listed[0].path, "--program", node.path, "-o", files[1].path]
    written = env.Command(files, [node, listed], Action([[*words, "--json", files[0].path], bill], f"Measuring {name}"))
    env.AlwaysBuild(env.Alias(f"{name}_size", [node, listed], Action([words], None)))
    env.Alias(f"{name}_report", written)
    env.Ignore(node.dir, written)  # on demand only
    return written


def model_test(env: Environment, model: Any, TARGET: str | None = None, INPUTS: Any = None, LABELS: Any = None,
               NAME: str = "", **expected: Any) -> Node:  # fmt: skip
    """A test that runs a model, which `env.Model` returned, against its reference in the simulator of a target.

    `scons model_NAME_TARGET` runs it, and `scons edgebuild_test` all. INPUTS and LABELS are files of numpy,
    MIN_ACCURACY (default: 1) is the part of the labels that must be right, MAX_INSTRUCTIONS the most for one inference.
    """
    request = next(iter(requests_of(env, env.Flatten([model]))), None)
    if request is None:
        raise wrong("EdgeBuildTest: error: the first argument must be what env.Model returned")
    stem = os.path.basename(request.path).removesuffix(".req.json")
    where = f"EdgeBuildTest('{stem}')"
    if unknown := [o for o in expected if o not in EXPECTED]:
        options = ["TARGET", "INPUTS", "LABELS", "NAME", *EXPECTED]
        raise wrong(f"{where}: error: unknown option {unknown[0]}{did_you_mean(unknown[0], options)}")
    if LABELS is not None and INPUTS is None:
        raise wrong(f"{where}: error: LABELS are those of INPUTS, which are missing")
    target = str(env.subst(TARGET or request.attributes.edgebuild_target))
    if target.endswith((".yaml", ".yml")) and TARGET:
        target = env.File(target).srcnode().rfile().abspath
    try:
        load_target(target)
    except EdgebuildError as error:
        raise wrong_file(where, error) from None
    expected = {"MIN_ACCURACY": 1, **expected} if LABELS is not None else expected
    words = ["$EDGEBUILD", "verify", request.path, "--target", target]
    files = []
    for option, file in (("--inputs", INPUTS), ("--labels", LABELS)):
        if file is not None:
            node = env.arg2nodes(file, env.fs.File)[0]
            if not node.has_builder() and not os.path.exists(node.srcnode().rfile().abspath):
                raise wrong(f"{where}: error: {option[2:].upper()}: no such file: {node.srcnode().path}")
            files.append(node)
            words += [option, node.path if node.has_builder() else node.srcnode().rfile().path]
    for name, value in expected.items():
        if not re.fullmatch(EXPECTED[name], str(value)):
            raise wrong(f"{where}: error: {name}: '{value}' is no such number")
        words += [f"--{name.lower().replace('_', '-')}", str(value)]
    name = NAME or f"model_{stem}_{Path(target).stem}"
    test = env.Alias(name, [request.attributes.edgebuild_products, *files], Action([words], f"Testing {name}"))
    env.AlwaysBuild(test)
    env.Alias("edgebuild_test", test)
    return test
