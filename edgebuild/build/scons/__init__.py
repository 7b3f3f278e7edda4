"""The SCons tool `edgebuild`: neural networks as nodes for `env.Program`.

    env = Environment(tools=["default", "edgebuild"])
    env.EdgeBuildTarget("mps2-an386")                    # compiler, flags, start-up code, linker script
    kws = env.Model("kws", "kws.tflite", RAM="16K")      # objects; kws.h is on the include path
    env.Program("app.elf", ["main.c", kws])

`env.EdgeBuildReport("app.elf", FLASH_BUDGET="64K")` reports the program's sizes, `env.EdgeBuildTest(kws)` is a test.
Several models in one arena are `env.Models`, parts of a model for several devices `env.Cluster`. Drivers are
`env.BfDriver`, clock configurations `env.ClockConfig`.

An installed package is not on SCons' search path. Use one of these:

    Environment(tools=["default", edgebuild.build.scons.generate])
    env.Tool("edgebuild", toolpath=[str(edgebuild.doors.scons_toolpath())])

The tool only declares nodes: `edgebuild run` does the work in a separate process. Its request file has the same bytes
as that of the CMake functions.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from SCons import SConsign
from SCons.Action import Action
from SCons.Defaults import processDefines
from SCons.Environment import MethodWrapper, OverrideEnvironment
from SCons.Errors import StopError
from SCons.Node.FS import Base, Dir, File
from SCons.PathList import PathList
from SCons.Subst import Literal
from SCons.Tool import CScanner

from ...base.artifacts import is_written, write_atomic
from ...base.errors import EdgebuildError, did_you_mean
from ...base.inputs import cmsis_nn_sources
from ...base.options import Option, options_of, parse_size
from ...base.own_code import code_at_start, with_code
from ...base.request import CLOCK_OUTPUTS, CPP_SUFFIXES, KINDS, SCHEMA, driver_outputs, group_outputs, model_outputs
from ...base.target import Target, firmware_support, hal_dir, link_flags, load_target
from ...base.text import identifier
from ...driver.registers.beside import files_beside
from ..check import check_core, check_request, check_tested, spelled
from ..entry import HEADER_ALONE
from ..stamp import is_current

Environment = Any  # SCons has no types
Node = Any
HERE = os.path.dirname(__file__)


def exists(env: Environment) -> bool:
    return True


def generate(env: Environment) -> None:
    env.SetDefault(
        EDGEBUILD=[sys.executable, "-P", "-m", "edgebuild"],
        EDGEBUILD_TARGET="",  # the host, unless the compiler is a cross compiler
        EDGEBUILDCOMSTR="Generating $TARGET",
        EDGEBUILDHEADERCOMSTR="Writing $TARGET",
        EDGEBUILD_HAL=str(hal_dir()),  # C files of edgebuild: ports, start-up code
    )
    methods = {
        "Model": model,
        "Models": models,
        "Cluster": cluster,
        "BfDriver": bf_driver,
        "ClockConfig": clock_config,
        "EdgeBuildTarget": use_target,
        "EdgeBuildReport": report,
        "EdgeBuildTest": model_test,
    }
    env.Append(PROGEMITTER=[_check_places])
    env.added_methods += [_Method(env, _checked(name, function), name) for name, function in methods.items()]


def _checked(name: str, function: Any) -> Any:
    """The function, which raises an error with the line of the call if its arguments do not fit."""
    parameters = inspect.signature(function)

    def call(*words: Any, **options: Any) -> Any:
        try:
            given = parameters.bind(*words, **options).arguments
        except TypeError as error:
            raise wrong(f"{name}: error: {error}") from None
        if bad := [p for p, v in given.items() if parameters.parameters[p].annotation == "str" and type(v) is not str]:
            raise wrong(f"{name}: error: {bad[0]} must be a string")
        return function(*words, **options)

    return call


class _Method(MethodWrapper):  # type: ignore[misc]
    """A method of an environment and its clones that does not change it if `env.Override(...)` clones the method.

    SCons would set the clone as an attribute of the override, which passes it on to `env`. Later calls of `env.Model`
    would then get the override.
    """

    def clone(self, new_object: Environment) -> Any:
        if isinstance(new_object, OverrideEnvironment):
            return functools.partial(self.method, new_object)
        return super().clone(new_object)


def model(env: Environment, name: str, source: Any = None, TARGET: str | None = None, **options: Any) -> list[Node]:
    """Objects of the model in the file `source`, to be linked. Adds the folder of its header `NAME.h` to CPPPATH.

    The generated files are in `edgebuild/NAME` of the build folder; those of a second model NAME, for another target,
    in `edgebuild/TARGET/NAME`. Options are those of `edgebuild model`, in upper case and with `_` for `-`.
    """
    where = f"Model('{name}')"
    source, *more = _files(env, where, "the model's file is", source)
    if more:
        raise wrong(f"{where}: error: {1 + len(more)} files, and a model has one; env.Models(...) takes several")
    folder, products = _products(env, where, "model", name, source, TARGET, options, model_outputs(name))
    objects = _objects(env, folder, name, products)
    if options.get("CLUSTER"):
        env.AppendUnique(CPPPATH=[str(hal_dir() / "include")])
        objects += env.Object(folder.File(env.subst(f"{name}_cluster$OBJSUFFIX")), str(hal_dir() / "src" / "cluster.c"))
    return [*objects, *_library(env, options)]


def models(env: Environment, name: str, sources: Any = None, TARGET: str | None = None, **options: Any) -> list[Node]:
    """Objects of models that share one arena, named after their files; `NAME.h` declares them and the buffers.

    SHARE: "exclusive", "pipeline" or "concurrent". BUFFERS: a list of the application's buffers, each as
    "audio=4K,alive=kws.input". Other options apply to each model.
    """
    where = f"Models('{name}')"
    sources = _files(env, where, "the models' files are", sources)
    names = [identifier(Path(str(s)).stem) for s in sources]
    outputs = group_outputs(name, names)
    folder, products = _products(env, where, "group", name, sources, TARGET, options, outputs)
    objects = [o for n in names for o in _objects(env, folder, n, products)]
    return [*objects, *_objects(env, folder, name, products), *_library(env, options)]


def _files(env: Environment, where: str, what: str, names: Any) -> list[Node]:
    try:
        files = list(env.arg2nodes(names or [], env.fs.File))
    except TypeError as error:  # a folder
        raise wrong(f"{where}: error: {error}") from None
    if not files or not all(isinstance(f, Base) for f in files):
        raise wrong(f"{where}: error: {what} missing; give a path or a node as the second argument")
    return files


def _objects(env: Environment, folder: Node, name: str, products: list[Node]) -> list[Node]:
    """Objects of the generated files of a model, or of a group's own files."""
    file = {node.name: node for node in products}
    if f"{name}.c" not in file:
        objects = list(env.Object(file[f"{name}_arena.c"]))
    else:
        objects = _of_model(env, folder, name, file)
    request = products[0].attributes.edgebuild_request
    is_native = load_target(request.attributes.edgebuild_target).core.isa == "native"
    for o in objects:
        o.attributes.edgebuild_memory = file[f"{name}_memory.ld"]
        if not is_native:
            o.attributes.edgebuild_check = file[f"{name}_check.ld"]
    return objects


def _of_model(env: Environment, folder: Node, name: str, file: dict[str, Node]) -> list[Node]:
    # .S files get the C flags, which name the processor, but are not preprocessed: an `-include config.h` among them
    # would insert declarations. Clang would warn of flags that the assembler does not use.
    flags = ["$CCFLAGS", "$ASFLAGS", "-x", "assembler", "-Wno-unused-command-line-argument"]
    assembled = env.Object(file[f"{name}_weights.S"], ASPPFLAGS=flags)
    # No scanner sees the dependency of .incbin.
    env.Depends(assembled, file[f"{name}_weights.bin"])
    objects = [*env.Object(file[f"{name}.c"]), *assembled]
    return [*objects, *env.Object(folder.File(env.subst(f"{name}_weights_c$OBJSUFFIX")), file[f"{name}_weights.c"])]


def _library(env: Environment, options: dict[str, Any]) -> list[Node]:
    """The kernel library that the options name. With MAP, adds the folder of the DMA unit's header to CPPPATH."""
    if options.get("MAP", "off") != "off":
        env.AppendUnique(CPPPATH=[str(hal_dir() / "include")])
    named = options.get("BACKEND") == "cmsis-nn" and options.get("CMSIS_NN")
    return _cmsis_nn(env, env.Dir(options["CMSIS_NN"])) if named else []


def cluster(
    env: Environment, name: str, source: Any, file: Any, DEVICES: Any, TARGET: str | None = None
) -> dict[str, list[Node]]:
    """Objects by device of the model on the devices that `file` describes; the header for device D is `NAME_D.h`."""
    devices = DEVICES.split() if isinstance(DEVICES, str) else DEVICES
    return {d: model(env, f"{name}_{d}", source, TARGET, CLUSTER=file, DEVICE=d) for d in devices}


def _cmsis_nn(env: Environment, place: Node) -> list[Node]:
    """CMSIS-NN in `place` as a static library. Adds the folder of its headers to CPPPATH."""
    env.AppendUnique(CPPPATH=[place.srcnode().Dir("Include")])
    sources = cmsis_nn_sources(Path(place.srcnode().abspath))
    folder = env.Dir("edgebuild").Dir("cmsis_nn")
    objects = [env.Object(folder.File(env.subst(f"{s.stem}$OBJSUFFIX")), env.File(str(s))) for s in sources]
    return list(env.StaticLibrary(folder.File("cmsis_nn"), objects)) if objects else []


def bf_driver(
    env: Environment, name: str, sources: Any = None, TARGET: str | None = None, **options: Any
) -> list[Node]:
    """Objects of the driver in the dialect's `sources`. Adds the folder of `NAME_regs.h` and others to CPPPATH.

    Options are those of `edgebuild driver`: LAYOUT, REGISTER_WIDTH, PROFILE. Files are relative to the SConscript.
    """
    where = f"BfDriver('{name}')"
    sources = _files(env, where, "the driver's sources are", sources)
    folders = [_source(env.Dir(d)) for d in _words(env, options.get("INCLUDE_DIRS"))]
    if missing := [d for d in folders if not os.path.isdir(d.abspath)]:
        raise wrong(f"{where}: error: INCLUDE_DIRS: no such folder: {missing[0]}")
    cpp = any(str(s).endswith(CPP_SUFFIXES) for s in sources)
    outputs = (*driver_outputs(name, cpp), f"{name}.lines")
    folder, products = _products(env, where, "driver", name, sources, TARGET, options, outputs, CScanner)
    value = env.Value(_flags(env, folder, cpp))
    flags = env.Command(folder.File(f"{name}.flags"), value, Action(write_value, None))
    env.Depends(products, flags)
    if _is_of_killed_run(env, flags[0], value.get_csig()):
        env.AlwaysBuild(flags, products)
    _, colon, file = str(env.subst(options.get("LAYOUT") or "")).partition(":")
    more = files_beside(Path(env.File(file).srcnode().rfile().abspath)) if colon else []
    env.Depends(products, [env.File(f) for f in more])
    beside = list(dict.fromkeys(s.srcnode().rfile().dir for s in sources))  # for headers that stay includes
    beside += folders
    defines = [f"-D{d}" for d in _words(env, options.get("DEFINES"))]
    forced = [f if f.has_builder() else f.srcnode() for f in map(env.File, _words(env, options.get("FORCE_INCLUDE")))]
    read_with = [*defines, *(w for f in forced for w in ("-include", f.path))]
    _tell_editors(env, folder, sources, beside, read_with)
    lines = folder.File(f"{name}.lines")  # defines the macros that #line has for the sources
    compiler = os.path.basename(str(env.subst("$CC")).split(" ")[0])
    more = [f"@{lines.path}"] if re.search(r"gcc|clang|^cc$", compiler) else []
    flags = [*env.Flatten(env.get("CCFLAGS", [])), *more, *read_with]
    built = env.Object(products[0], CPPPATH=[*env.get("CPPPATH", []), *beside], CCFLAGS=flags)
    env.Depends(built, [lines, *forced])
    return list(built)


def _source(node: Node) -> Node:
    """The file or folder of a node: no copy in a variant folder, and that of a Repository if it is there."""
    node = node.srcnode().disambiguate()
    if isinstance(node, Dir):
        return next((d for d in node.get_all_rdirs() if os.path.isdir(d.abspath)), node)
    return node.rfile()


def _words(env: Environment, value: Any) -> list[Any]:
    """The values of an option: a list, or a text with commas between them."""
    given = env.Flatten([value or []])
    return [word for v in given for word in (str(env.subst(v)).split(",") if isinstance(v, str) else [v])]


def _tell_editors(
    env: Environment, folder: Node, sources: list[Node], beside: list[Node], read_with: list[str]
) -> None:
    """Add rows to compile_commands.json, if `env` has one, for editors that parse the sources; they build nothing."""
    if "CompilationDatabase" not in env["BUILDERS"]:
        return
    support = env.Dir(str(hal_dir() / "include"))
    words = ["-include", support.File("edgebuild_bf.h").abspath]
    for s in sources:
        narrow = ["-Wno-c++11-narrowing", "-std=gnu++17"] if str(s).endswith(CPP_SUFFIXES) else []
        reader = env.Clone(CPPPATH=[support, *env.get("CPPPATH", []), *beside])
        reader.Append(CPPDEFINES=["EDGEBUILD_SHORT_WORDS"], CCFLAGS=[*words, *narrow, *read_with])
        emit = env["BUILDERS"]["StaticObject"].emitter[os.path.splitext(str(s))[1]]
        emit([folder.File(f"{os.path.basename(str(s))}$OBJSUFFIX")], [s], reader)


def _flags(env: Environment, folder: Node, cpp: bool) -> str:
    """The include folders, definitions and flags of `env`, without folders of products: see `with_flags`."""
    products = env.Dir("edgebuild")
    paths = map(env.Dir, PathList(env.get("CPPPATH", ())).subst_path(env, None, None))
    kept = [d for d in paths if not (d == products or d.is_under(products))]
    relative = (os.path.relpath(d.srcnode().abspath, folder.abspath) for d in kept)
    lines = [f"-I{Path(p).as_posix()}" for p in relative]
    lines += [f"-D{env.subst(str(d))}" for d in processDefines(env.get("CPPDEFINES", []))]
    words = env.subst_list(["$CCFLAGS", "$CPPFLAGS", "$CXXFLAGS" if cpp else "$CFLAGS"])[0]
    lines += [f"SHELL:{shlex.join(map(str, words))}"]
    return "".join(f"{line}\n" for line in lines)


def clock_config(env: Environment, name: str, TARGET: str | None = None, **options: Any) -> list[Node]:
    """The object that switches the target's clocks. Adds the folder of its header `clock_config.h` to CPPPATH.

    HSE: the board's external clock, such as "8MHz"; SYSCLK: the clocks to switch between, a list or "72MHz,216MHz".
    A chip has one clock, so a program has one of these, and an environment too.
    """
    where = f"ClockConfig('{name}')"
    if (other := env.get("_EDGEBUILD_CLOCKS", name)) != name:
        raise wrong(f"{where}: error: this environment has ClockConfig('{other}'), and both make clock_config.h")
    _, products = _products(env, where, "clock", name, [], TARGET, options, CLOCK_OUTPUTS)
    env.Replace(_EDGEBUILD_CLOCKS=name)
    return list(env.Object(products[0]))


def use_target(env: Environment, name: str, LIBC: bool = False, LINKER_SCRIPT: Any = None) -> None:
    """Compile, link and start up the programs of `env` for a target, and make models for it.

    LIBC: use the toolchain's C library, which floating-point models need. LINKER_SCRIPT: a file in place of edgebuild's
    own. $EDGEBUILD_RUNNER becomes the command that runs $SOURCE in the target's emulator.
    """
    name = where = env.subst(name)
    if name.endswith((".yaml", ".yml")):
        name = env.File(name).srcnode().rfile().abspath  # absolute, since SConscripts in other folders use `env`
    chip = _load(f"EdgeBuildTarget('{where}')", name)
    tools = chip.toolchain
    libc = tools.libc if LIBC else ()
    folder = env.Dir("edgebuild").Dir(chip.name)
    script = env.File(LINKER_SCRIPT) if LINKER_SCRIPT else None
    _mark_missing(f"EdgeBuildTarget('{where}')", [script] if script else [])
    flags = [
        f"-T{script.path}" if script and f.startswith("-T") else f for f in link_flags(chip, folder=f"{folder.path}/")
    ]
    env.Replace(EDGEBUILD_TARGET=name, CC=tools.compiler, LINK="$CC", AS="$CC", _EDGEBUILD_FRAGMENTS=_fragment_flags)
    env.Replace(CXX=re.sub("gcc$", "g++", tools.compiler))
    env.Replace(**{variable: tools.prefix + variable.lower() for variable in ("AR", "RANLIB", "OBJCOPY", "SIZE")})
    env.Append(
        CCFLAGS=[*tools.cflags, *libc],
        ASPPFLAGS=[*tools.cflags, *libc],
        CPPPATH=[str(hal_dir() / "include")],
        LINKFLAGS=[*libc, *flags, "$_EDGEBUILD_FRAGMENTS"],
        LIBS=[lib.removeprefix("-l") for lib in (*(tools.libm if LIBC else ()), *tools.libs)],
    )
    if chip.runner:
        env["EDGEBUILD_RUNNER"] = [word.replace("{elf}", "$SOURCE") for word in chip.runner.command]
    if chip.firmware:
        _add_firmware(env, chip, folder, script or env.File(str(hal_dir() / chip.firmware.linker)))


def _add_firmware(env: Environment, chip: Target, folder: Node, script: Node) -> None:
    """Add start-up code to every program of `env`, and a dependency on its linker scripts."""
    support = firmware_support(chip)
    scripts = [env.Command(folder.File(a.name), env.Value(a.data.decode()), Action(write_value, None)) for a in support]
    scripts.append(script)
    files = [hal_dir() / f for f in (*chip.startup, *(chip.runner.sources if chip.runner else ()))]
    objects = [env.Object(folder.File(env.subst(f"{f.stem}$OBJSUFFIX")), str(f)) for f in files]

    def emitter(target: list[Node], source: list[Node], env: Environment) -> tuple[list[Node], list[Node]]:
        env.Depends(target, [*scripts, *_scripts(source, "memory")])
        return target, [*source, *env.Flatten(objects)]

    env.Append(PROGEMITTER=[emitter])


def _products(
    env: Environment,
    where: str,
    kind: str,
    name: str,
    source: Any,
    given_target: str | None,
    options: dict[str, Any],
    outputs: tuple[str, ...],
    scanner: Any = None,
) -> tuple[Node, list[Node]]:
    """(folder, products) of a request. `source`: a node, or a list of them."""
    _check_options(where, options, [o.upper() for o in options_of(KINDS[kind])])
    target = _target_name(env, where, given_target)
    products = env.Dir("edgebuild")
    # Compared in upper case, as in macros, and since some file systems ignore case.
    names = products.attributes.__dict__.setdefault("edgebuild_names", {})
    if (other := names.setdefault(name.upper(), name)) != name:
        raise wrong(f"{where}: error: the name is taken in this folder by '{other}'; choose another name")
    folder = products.Dir(name)
    if folder.attributes.__dict__.setdefault("edgebuild_target", target) != target:
        folder = products.Dir(Path(target).stem).Dir(name)
    text, files = _request(env, where, kind, name, source, folder, target, options)
    if folder.attributes.__dict__.setdefault("edgebuild_request", text) != text:
        raise wrong(f"{where}: error: the name is taken in this folder by another request; choose another name")
    request = folder.File(f"{name}.req.json")
    # The Python interpreter is no input; edgebuild's code is.
    settings = {"EDGEBUILD_REQUEST": request.path, "EDGEBUILD_TEXT": text, "IMPLICIT_COMMAND_DEPENDENCIES": 0}
    settings["EDGEBUILD_CALL"] = call_option()
    header = f"{name}.h" if kind == "model" and not options.get("CLUSTER") else ""
    ahead = _command(env, folder, name, ".header", [header], source, _HEADER_ACTION, settings) if header else []
    others = [f for f in outputs if f != header]
    rest = _command(env, folder, name, "", others, source, _ACTION, {**settings, "source_scanner": scanner})
    env.Requires(rest, ahead)
    env.SideEffect(request, rest[0])
    env.Clean(rest[0], request)
    by_name = {node.name: node for node in (*rest, *ahead)}
    products = [by_name[f] for f in outputs]
    # The request as values, which --debug=explain prints. A dependency of one product is enough for all.
    stated = json.loads(text)
    words = [f"target {stated['target']}", *(f"{o.upper()}={value}" for o, value in stated["options"].items())]
    version = [env.Value(word) for word in (*words, f"edgebuild {code_at_start()[:16]}")]
    env.Depends([products[0], *ahead], version)
    if _is_of_killed_run(env, request, text):
        env.AlwaysBuild(products, ahead)
    # All inputs besides the sources are known now. A scanner of the depfile would see them only after the first run,
    # and SCons would then run again because of them.
    if files := [*files, *(env.File(f) for f in with_code(load_target(target).files, ()))]:
        env.Depends([products[0], *ahead], files)
    inputs = [*(source if isinstance(source, list) else [source]), *files]
    _mark_missing(where, inputs)
    request.attributes.__dict__.update(edgebuild_target=target, edgebuild_products=list(products))
    products[0].attributes.edgebuild_request = request
    env.Alias("codegen", [products[0], *ahead])
    # As text if that is equivalent: nodes in the list are slower each time that SCons evaluates it.
    path = folder.path.replace("$", "$$") if folder.get_all_rdirs() == [folder] else folder
    env.AppendUnique(CPPPATH=[f"#/{path}" if isinstance(path, str) and not os.path.isabs(path) else path])
    return folder, list(products)


def _command(
    env: Environment,
    folder: Node,
    name: str,
    part: str,
    files: list[str],
    source: Any,
    action: Any,
    settings: dict[str, Any],
) -> list[Node]:
    """The nodes of one run of a request; `part`: see `stamp.stamp_of`."""
    nodes = env.Command([folder.File(f) for f in files], source, action, **settings)
    # SCons records the inputs of its last complete run. A killed run may have left other files.
    if os.path.exists(nodes[0].abspath) and not is_current(folder.File(f"{name}.req.json").abspath, part):
        env.AlwaysBuild(nodes)
    for node in nodes:
        node.set_precious()  # not deleted before the run, which replaces it atomically
        node.set_nocache()
    # As a side effect, since SCons removes files from a variant folder that are neither targets nor copies.
    stamp = env.SideEffect(folder.File(f"{name}{part}.stamp"), nodes[0])
    env.Clean(nodes[0], [*stamp, folder.File(f"{name}{part}.d")])
    return list(nodes)


def _is_of_killed_run(env: Environment, file: Node, text: str) -> bool:
    """Whether the file has another text, from a run that was killed before SCons recorded it.

    SCons would then mistake the products for those of the run before.
    """
    place = Path(file.abspath)
    if not place.exists() or is_written(place, text.encode()):
        return False
    memory = Path(env.fs.Top.abspath, f"{SConsign.DB_Name or SConsign.current_sconsign_filename()}.dblite")
    return not memory.exists() or memory.stat().st_mtime_ns < place.stat().st_mtime_ns


class _Missing(File):  # type: ignore[misc]
    """A missing file that a call names: an error at the call, unless a later rule builds it."""

    __slots__ = ()

    def missing(self) -> bool:
        if super().missing():
            print(self.attributes.edgebuild_error, file=sys.stderr)
            raise StopError(self.attributes.edgebuild_error)
        return False


def _mark_missing(where: str, inputs: list[Node]) -> None:
    for node in inputs:
        place = node.srcnode().rfile().abspath
        if os.path.exists(place) and not (os.path.isfile(place) or os.path.isdir(place)):  # SCons would read it
            raise wrong(f"{where}: error: it is a pipe or a device, and no file: {node.srcnode().path}")
        if not node.has_builder() and not os.path.exists(place):
            error = f"{where}: error: no such file: {node.srcnode().path}"
            node.disambiguate().attributes.edgebuild_error = str(wrong(error))
            node.__class__ = _Missing


def _check_options(where: str, options: dict[str, Any], accepted: list[str]) -> None:
    if unknown := [o for o in options if o not in accepted]:
        raise wrong(f"{where}: error: unknown option {unknown[0]}{did_you_mean(unknown[0], accepted)}")


def _target_name(env: Environment, where: str, given: str | None) -> str:
    """The target that a call names, or that of `env`, checked against the compiler and its flags."""
    name = str(env.subst(given or "$EDGEBUILD_TARGET"))
    compiler = "" if name else os.path.basename(str(env.subst("$CC")).split(" ")[0])
    if re.search(r"-(none|elf|eabi\w*)-", compiler):
        hint = "TARGET='mps2-an386', or env.EdgeBuildTarget('mps2-an386')"
        raise wrong(f"{where}: error: {compiler} is a cross compiler, and no target is named\n  such as {hint}")
    name = name or "host"
    chip = _load(where, name)
    try:
        check_core(chip, str(env.subst("$CCFLAGS $CFLAGS")))
    except EdgebuildError as error:
        raise wrong(f"{where}: {error}") from None
    return name


def _scripts(nodes: list[Node], kind: str) -> list[Node]:
    """The linker scripts `N_memory.ld` or `N_check.ld` of the models among the objects of a program."""
    scripts = [getattr(n.attributes, f"edgebuild_{kind}", None) for n in nodes]
    return list(dict.fromkeys(f for f in scripts if f is not None))


def _check_places(target: list[Node], source: list[Node], env: Environment) -> tuple[list[Node], list[Node]]:
    """Link `N_check.ld` of the models among the objects, and among the objects of libraries given as nodes."""
    nodes = [n for n in (*source, *env.Flatten(env.get("LIBS", []))) if hasattr(n, "sources")]
    return target, [*source, *_scripts([*nodes, *(s for n in nodes for s in n.sources)], "check")]


def _fragment_flags(target: list[Node], source: list[Node], env: Environment, for_signature: bool) -> list[str]:
    return [f"-Wl,-T,{f.path}" for f in _scripts(source, "memory")]


def _load(where: str, name: str) -> Target:
    try:
        return load_target(name)
    except EdgebuildError as error:
        raise wrong_file(where, error) from None


def _request(
    env: Environment, where: str, kind: str, name: str, source: Any, folder: Node, target: str, options: dict[str, Any]
) -> tuple[str, list[Node]]:
    """(text of the request file, see edgebuild.base.request; files that its options name)."""
    files: list[Node] = []

    def relative(node: Node) -> str:
        place = node if isinstance(node, File) and node.has_builder() else _source(node)
        return Path(os.path.relpath(place.abspath, folder.abspath)).as_posix()

    def named(file: Any) -> str:
        node = env.arg2nodes(file, env.fs.Entry)[0]
        files.extend([] if isinstance(_source(node), Dir) else [node])
        return relative(node)

    def text(o: Option, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return (o.kind.separator or " ").join(str(text(o, v)) for v in value)
        if o.kind.is_file and not isinstance(value, str | Path):
            return named(value)  # a node
        return o.moved(str(env.subst(str(value))), named)

    accepted = options_of(KINDS[kind])
    request = {
        "kind": kind,
        "name": name,
        "options": {o.lower(): text(accepted[o.lower()], v) for o, v in options.items() if v is not None},
        "output": ".",
        "schema": SCHEMA,
        "source": [relative(s) for s in source] if isinstance(source, list) else relative(source),
        "target": relative(env.File(target)) if target.endswith((".yaml", ".yml")) else target,
    }
    words = json.dumps(request, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    is_new = not is_written(Path(folder.abspath, f"{name}.req.json"), words.encode())
    if problems := check_request(request, folder.abspath, plan_clocks=is_new):
        raise wrong("\n".join(f"{where}: {p}" for p in problems))
    return words, files


def _write_request(target: list[Node], source: list[Node], env: Environment) -> None:
    """Write the request file. Its content is a dependency already."""
    file = Path(target[0].dir.abspath) / os.path.basename(env["EDGEBUILD_REQUEST"])
    write_atomic(file, env["EDGEBUILD_TEXT"].encode())


def _run(message: str, *options: str) -> Any:
    """The action that runs the request."""
    command = Action([["$EDGEBUILD", "run", *options, "$(", "$EDGEBUILD_CALL", "$)", "$EDGEBUILD_REQUEST"]], message)
    return Action([Action(_write_request, None), command])


_ACTION, _HEADER_ACTION = _run("$EDGEBUILDCOMSTR"), _run("$EDGEBUILDHEADERCOMSTR", HEADER_ALONE)


def call_place() -> str:
    """FILE:LINE of the call in the user's SConscript, or ""."""
    frame: Any = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(HERE) and f"{os.sep}SCons{os.sep}" not in file:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def call_option() -> Literal:
    """The option with the position of the call; a Literal, so that SCons does not split it at blanks."""
    return Literal(f"--call={call_place()}")


def wrong(text: str) -> StopError:
    """An error with the line of the SConscript. For a UserError, SCons would print the innermost line, in this file."""
    place = call_place()
    return StopError(f"{place}: {text}" if place else text)


def wrong_file(where: str, error: EdgebuildError) -> StopError:
    """An error at its line in the file that a call names; without a file, at the line of the SConscript."""
    if all(os.path.isfile(d.file) for d in error.diagnostics):
        return StopError(str(error))
    return wrong("\n".join(f"{where}: {spelled(d)}" for d in error.diagnostics))


def write_value(target: list[Any], source: list[Any], env: Any) -> None:
    """The action that writes the text of a Value."""
    write_atomic(Path(target[0].abspath), source[0].read().encode())


# Linked programs and tests: env.EdgeBuildReport, env.EdgeBuildTest.

BUDGETS = ("FLASH_BUDGET", "RAM_BUDGET", "STACK_BUDGET")
EXPECTED = {"MIN_ACCURACY": r"0|1|0?\.\d+|1\.0+", "MAX_INSTRUCTIONS": r"\d+"}


def requests_of(env: Environment, nodes: list[Node]) -> list[Node]:
    """The requests of the models, drivers and clocks among the nodes, also inside of libraries."""
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
    """Report a program's flash, RAM and stack: `scons NAME_size` prints the report, `scons NAME_report` writes it.

    FLASH_BUDGET, RAM_BUDGET, STACK_BUDGET: limits; exceeding one fails the link. ENTRY: the function at which the stack
    begins. Returns the files NAME_size.json, the report, and NAME.spdx.json, a bill of materials.
    """
    node = env.arg2nodes(program, env.fs.File)[0]
    name = os.path.basename(str(node))
    where = f"EdgeBuildReport('{name}')"
    _check_options(where, budgets, [*BUDGETS, "ENTRY"])
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
        check = [*words, "--quiet", "--last", last.path, *limits, "$(", call_option(), "$)"]
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
    """A test that compares a model, as returned by `env.Model`, with its reference in the simulator of a target.

    `scons model_NAME_TARGET` runs it, and `scons edgebuild_test` all tests. INPUTS and LABELS: files of numpy.
    MIN_ACCURACY (default: 1): least share of correct labels. MAX_INSTRUCTIONS: limit for one inference.
    """
    request = next(iter(requests_of(env, env.Flatten([model]))), None)
    if request is None:
        raise wrong("EdgeBuildTest: error: the first argument must be what env.Model returned")
    stem = os.path.basename(request.path).removesuffix(".req.json")
    where = f"EdgeBuildTest('{stem}')"
    _check_options(where, expected, ["TARGET", "INPUTS", "LABELS", "NAME", *EXPECTED])
    if LABELS is not None and INPUTS is None:
        raise wrong(f"{where}: error: LABELS are those of INPUTS, which are missing")
    if "MIN_ACCURACY" in expected and LABELS is None:
        raise wrong(f"{where}: error: MIN_ACCURACY is that of LABELS, which are missing")
    target = str(env.subst(TARGET or request.attributes.edgebuild_target))
    if target.endswith((".yaml", ".yml")) and TARGET:
        target = env.File(target).srcnode().rfile().abspath
    try:
        check_tested(load_target(target), "MAX_INSTRUCTIONS" in expected)
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
