"""Names that mean something to a compiler, a build system or a terminal, through every product."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from systemrdl.parser.SystemRDLLexer import SystemRDLLexer

from edgebuild.base import templates, text
from edgebuild.base.artifacts import publish
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.base.target import hal_dir, load_target, regions_script
from edgebuild.cli import main
from edgebuild.clock.tree import load_clock_tree
from edgebuild.driver.emit.hal import named
from edgebuild.driver.pipeline import compile_driver
from edgebuild.model.emit.pictures import timeline_picture
from edgebuild.model.plan.distribute.timeline import Span, Timeline
from tests.clocks.trees import whole
from tests.conftest import ROOT, run
from tests.fuzz.hostile import ATOMS, USES, names, problems, shown

COMPILERS = ("gcc", "g++", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc")
MANY = 10_000
PACKAGE = ROOT / "edgebuild"


@pytest.mark.needs(*COMPILERS)
@pytest.mark.parametrize("kind", ["rows", "ports", "cluster", "driver"])
def test_a_few_names(kind: str, tmp_path: Path) -> None:
    assert not list(problems(kind, [1, 2], tmp_path))


def test_the_row_of_a_device_tells_its_whole_name(tmp_path: Path) -> None:
    """A semicolon parts the names of fused tensors, and not the texts of a picture."""
    span = Span(0, "compute", 0.0, 1.0, 0, "a;b")
    picture = timeline_picture(Timeline(((span,),), ()), [";d"], 1.0, "c;e").svg()
    assert all(text in picture for text in (">;d</text>", ">c;e</text>", ";d, compute a, 0.000 to 0.001 ms")), picture


@pytest.mark.slow
@pytest.mark.needs(*COMPILERS)
@pytest.mark.parametrize("kind", USES)
def test_many_names(kind: str, tmp_path: Path) -> None:
    assert not list(problems(kind, range(-(-MANY // USES[kind].names)), tmp_path))


@pytest.mark.needs("gcc", "g++")
@pytest.mark.parametrize("kind", ["ports", "driver"])
def test_what_lets_a_name_through_is_seen(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`*/` was broken before a backslash became `/`, so that `*` and a backslash became one."""

    def former(name: str) -> str:
        return name.split(";")[0].replace("*/", "* /").replace("\\", "/")

    monkeypatch.setattr(text, "comment", former)  # of names
    monkeypatch.setattr(templates, "comment", former)
    monkeypatch.setitem(templates.environment().filters, "quoted", '"{}"'.format)
    assert list(problems(kind, range(4), tmp_path))


def drawn(count: int) -> list[str]:
    """Texts of the grammar and of all of Unicode."""
    random, words = Random(7), names(7)
    signs = [chr(random.randrange(0x110000)) for _ in range(count)]
    return [next(words) + sign + random.choice(ATOMS) for sign in signs]


def test_no_text_ends_a_comment_or_a_line() -> None:
    every = "".join(map(chr, range(0x110000)))
    for name in [*drawn(3000), "*\\E}", "* /", "a */", " * /", "*", "* ", " *", "/", every[:3000]]:
        printed = f"/* {text.comment(name)} */"
        assert printed.index("*/") == len(printed) - 2 and "/*" not in printed[1:]
        assert not set("\\?\n") & set(printed) and shown(printed), printed
        assert text.comment(text.comment(name)) == text.comment(name)
    assert text.comment("real = scale * (q - 1)") == "real = scale * (q - 1)"
    assert text.comment("left/Größe 漢字, 50 %; a#1") == "left/Größe 漢字, 50 %; a#1"


def test_identifiers_are_letters_digits_and_underscores() -> None:
    for name in drawn(2000):
        assert re.fullmatch("[A-Za-z0-9_]{1,120}", text.identifier(name), re.ASCII)
        assert re.fullmatch("[A-Za-z0-9_]*", text.part(name), re.ASCII)
        assert re.fullmatch(r"\\?[A-Za-z_][A-Za-z0-9_]*", text.rdl_name(name), re.ASCII)
        assert re.fullmatch("[A-Za-z0-9_.-]+", text.file_part(name), re.ASCII)


def test_xml_of_any_text_is_read() -> None:
    for name in drawn(2000):
        shown_text = ElementTree.fromstring(f'<a b="{text.xml(name)}">{text.xml(name)}</a>')
        assert shown_text.text == shown_text.attrib["b"] and len(list(shown_text.iter())) == 1


@pytest.mark.needs("gcc", "g++")
def test_strings_hold_any_text(tmp_path: Path) -> None:
    """In C and C++ they have the bytes of the text, and as the file of `#line` too."""
    texts = [name.replace("\0", "") for name in drawn(1000)]
    texts = [name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") for name in texts
             if not any("\ud800" <= c <= "\udfff" for c in name)]  # fmt: skip
    rows = [f"    {{{text.quoted(name)}, {len(name.encode())}}}," for name in texts]
    bytes_ = [f"    {{{', '.join(f'(char){b}' for b in (*name.encode(), 0))}}}," for name in texts]
    most = max(len(name.encode()) for name in texts) + 1
    source = [
        "#include <string.h>", "static const struct { const char *text; int bytes; } rows[] = {", *rows, "};",
        f"static const char expected[][{most}] = {{", *bytes_, "};", "int main(void) {",
        f"    for (int i = 0; i < {len(texts)}; ++i)",
        "        if (memcmp(rows[i].text, expected[i], (unsigned)rows[i].bytes + 1)) return 1;",
        "    return 0;", "}", "",
    ]  # fmt: skip
    (tmp_path / "s.c").write_text("\n".join(source))
    for compiler in (["gcc", "-std=c11", "-trigraphs", "-pedantic"], ["g++", "-x", "c++"]):
        run(*compiler, "-Wall", "-Wextra", "-Werror", "s.c", "-o", "s", cwd=tmp_path)
        run("./s", cwd=tmp_path)


def test_words_of_systemrdl_are_those_of_its_compiler() -> None:
    words = {name.strip("'") for name in SystemRDLLexer.literalNames if re.fullmatch(r"'[a-z_0-9]+'", name or "")}
    assert words == text.RDL_KEYWORDS


COLLIDING = """\
bfGroup P { bit en; bit EN; bit En; }; bfGroup S { bfGroup P r; bfGroup P r_en; };
make_device(S, s, 0x40000000);
void set(void) { s->r.en = 1; s->r.EN = 0; s->r.En = 1; s->r_en.en = 1; }
"""


@pytest.mark.needs("gcc", "g++")
def test_fields_whose_names_differ_in_case_alone(tmp_path: Path) -> None:
    """Macros have the names in upper case."""
    (tmp_path / "d.bf.c").write_text(COLLIDING)
    artifacts, _ = compile_driver(DriverRequest((tmp_path / "d.bf.c",), "d", "riscv-virt"))
    publish(artifacts, tmp_path)
    for compiler, file in (("gcc", "d_regs.h"), ("g++", "d_systemc.h"), ("gcc", "d.c")):
        run(compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", {"gcc": "c", "g++": "c++"}[compiler], file,
            cwd=tmp_path)  # fmt: skip
    shifts = re.findall(r"#define D_S_R_EN_+SHIFT (\d+)u", (tmp_path / "d_regs.h").read_text())
    assert len(shifts) == len(set(shifts)) == 3


def test_functions_of_registers_have_names_of_c() -> None:
    for name in drawn(500):
        assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", named("HAL_PUT", "P", name), re.ASCII)


# ---- templates


def test_remarks_and_pictures_escape_what_they_print() -> None:
    for name in drawn(500):
        remark = templates.remark("x; ", name, f"a *{name}*/")
        assert remark.index("*/") == len(remark) - 2 and "\\" not in remark and "?" not in remark
        picture = templates.pictures().from_string('<a b="{{ x }}">{{ x }}</a>').render(x=name)
        assert len(list(ElementTree.fromstring(picture).iter())) == 1


SINKS = re.compile(r"\|\s*(comment|quoted)\b|^remark\(")
OWN = re.compile(  # values that no file has a text in: numbers, times, names that are checked to be identifiers
    r"(name|prefix|licence .*|line|section|memory|weights_memory|bytes|weights_bytes|arena_bytes|macs|peak|hse|lock"
    r"|align|apb[12]|'.*"
    r"|ahb( \* apb[12])?"
    r"|\".*|group|models\[.*|model|moment|together\[report\.share\]|symbol|symbols\[b\.memory\]|offset|macro|b\.\w+.*"
    r"|arenas .*"
    r"|feed|first \| upper|oscillator|base_hz"
    r"|loop\.\w+|step\.step|row\.name|budget\.ms|clocks\.(hse|budgets)\b.*|devices \| length)"
)


def test_templates_print_texts_in_comments_and_strings_through_a_sink() -> None:
    wrong = []
    for file in [*PACKAGE.glob("model/emit/templates/*.j2"), *PACKAGE.glob("clock/**/*.j2")]:
        if not file.name.endswith(".svg.j2"):  # all of that is escaped
            shown_in = [e for e in printed(file.read_text()) if not SINKS.search(e)]
            wrong += [f"{file.name}: {e}" for e in shown_in if not OWN.fullmatch(e)]
    assert not wrong


def printed(template: str) -> list[str]:
    """The expressions inside of comments, strings and `#error`."""
    expressions: list[str] = []

    def mark(match: re.Match[str]) -> str:
        expressions.append(match[1].strip(" -"))
        return f"\0{len(expressions) - 1}\0"

    whole = re.sub(r"\{\{(.*?)\}\}", mark, re.sub(r"\{#.*?#\}", "", template, flags=re.S), flags=re.S)
    whole = re.sub(r"\{%.*?%\}", "", whole, flags=re.S)
    inside = re.findall(r"/\*.*?\*/|\"[^\"\n]*\"|//[^\n]*|#error[^\n]*", whole, flags=re.S)
    return [expressions[int(n)] for span in inside for n in re.findall("\0(\\d+)\0", span)]


def test_a_template_without_a_sink_is_seen() -> None:
    assert printed('/* {{ file }} */ {{ x }} "{{ y }}" #error {{ z }}\n') == ["file", "y", "z"]


# ---- facts from YAML

EVIL = '*/ } "\\\n#error \x1b[31m'


def changed(folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of a file that ships, with something else in one place."""
    whole = (hal_dir() / file).read_text()
    assert whole.count(old) >= 1, old
    target = folder / Path(file).name
    target.write_text(whole.replace(old, new))
    return target


def test_a_description_of_a_target_stays_in_its_comment(tmp_path: Path) -> None:
    whole = (hal_dir() / "targets" / "microbit.yaml").read_text()
    (tmp_path / "evil *.yaml").write_text(
        re.sub("(?m)^description: .*", lambda _: f"description: {json.dumps(EVIL)}", whole)
    )
    script = regions_script(load_target(str(tmp_path / "evil *.yaml")))
    assert script.count("*/") == 1 and "\x1b" not in script and "#error" in script.split("*/")[0]


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("targets/diana.yaml", "  digital:", "  'a/*b':", "engine 'a/*b' becomes a part of names in C"),
        ("targets/microbit.yaml", "RAM:", "'RÄM':", "is no name for a linker region"),
    ],
)
def test_names_that_become_identifiers_are_checked(file: str, old: str, new: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match=re.escape(reason)):
        load_target(str(changed(tmp_path, file, old, new)))


def test_registers_of_a_clock_tree_are_identifiers(tmp_path: Path) -> None:
    text = whole("stm32f411")
    assert "RCC_CFGR:" in text
    tree = tmp_path / "tree.yaml"
    tree.write_text(text.replace("RCC_CFGR:", '"RCC_CFGR 1\\n#define X":', 1))
    with pytest.raises(EdgebuildError, match="becomes a macro of C"):
        load_clock_tree(str(tree))


def test_nothing_that_is_printed_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.yaml").write_text(f"inherits: microbit\ndescription: {json.dumps(EVIL)}\n")
    assert main(["targets", str(tmp_path / "b.yaml")]) == 0
    out = capsys.readouterr().out
    assert shown(out) and "\\u001b[31m" in out
