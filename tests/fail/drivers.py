"""Drivers, register descriptions and overlays with mistakes; each diagnostic has a caret."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fail.registry import case

DRIVER = "driver dev.c --name n --target pulpino -o out"
DEVICE = "make_device(G, g, 0x40000000);\n"


def driver(folder: Path, text: str, place: str, words: str) -> tuple[str, str]:
    """The diagnostic `words` at `place`, line:column of dev.c, above its line and a caret."""
    (folder / "dev.c").write_text(text)
    return DRIVER, caret(folder / "dev.c", place, words)


def caret(file: Path, place: str, words: str) -> str:
    line, column = map(int, place.split(":"))
    shown = re.escape(file.read_text().splitlines()[line - 1])
    lines = [rf"{re.escape(file.name)}:{place}: error: {words}", f"    {shown}", rf" {{{column + 3}}}\^~*"]
    return "\n".join(f"(?m)^{text}$" for text in lines)


@case
def driver_syntax_error(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G {{ bit a; }};\n{DEVICE}void on(void)\n{{\n    g->a = 1\n}}\n"
    return driver(folder, text, "5:13", "expected ';' after expression")


@case
def driver_macro_of_another_source(folder: Path) -> tuple[str, str]:
    """The second source would take the first one's value, and not its own."""
    asked = "#ifndef LIMIT\n#define LIMIT {}\n#endif\n"
    (folder / "first.c").write_text(f"bfGroup G {{ bit a; uint8 n; }};\n{DEVICE}{asked.format(9)}")
    (folder / "dev.c").write_text(f"/*\n*/\n{asked.format(5)}void f(void) {{ g->n = LIMIT; }}\n")
    words = "'LIMIT' is a macro of first.c, which stands in front of this source in the same unit"
    return DRIVER.replace("dev.c", "first.c dev.c"), caret(folder / "dev.c", "3:9", words)


@case
def driver_unknown_read_target(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G {{\n    bit rse(self, staet) a;\n    bit state;\n}};\n{DEVICE}"
    return driver(folder, text, "2:19", r"rse target 'staet' is not a field of group 'G'; did you mean 'state'\?")


@case
def driver_unknown_write_target(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G {{\n    bit wse(Other::b) a;\n}};\n{DEVICE}"
    return driver(folder, text, "2:13", "wse target 'Other::b': no group 'Other'")


@case
def driver_cyclic_group(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G;\nbfGroup H {{\n    bfGroup G inner;\n}};\nbfGroup G {{ bfGroup H h; }};\n{DEVICE}"
    return driver(folder, text, "3:15", "field has incomplete type 'struct G'")


@case
def driver_two_devices_at_one_address(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G {{ bit a; }};\n{DEVICE}make_device(G, h, 0x40000000);\n"
    return driver(folder, text, "3:1", "device 'h' is at 0x40000000, and so is 'g'")


@case
def driver_devices_that_overlap(folder: Path) -> tuple[str, str]:
    use = "void f(int i) { g->a[i] = h->a[i]; }\n"
    text = f"bfGroup G {{ uint32 a[8]; }};\n{DEVICE}make_device(G, h, 0x40000010);\n{use}"
    return driver(folder, text, "3:1", "device 'h' at 0x40000010 lies within 'g', which has 32 bytes at 0x40000000")


@case
def driver_address_of_a_field(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G {{ bit a; }};\n{DEVICE}void set(unsigned char *);\nvoid f(void) {{ set(&g->a); }}\n"
    return driver(folder, text, "4:20", "a bit field has no address: 'a'")


@case
def driver_group_copy(folder: Path) -> tuple[str, str]:
    text = "bfGroup P { bit a; };\nbfGroup G { bfGroup P x, y; };\n" + DEVICE + "bfGroup P other(void);\n"
    return driver(folder, f"{text}void f(void) {{ g->x = other(); }}\n", "5:16", "a group cannot be copied")


FITTING = "enum Speed { SLOW, FAST };\nenum Other { SOME, MORE };\n"


@case
def driver_constant_that_does_not_fit(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G {{ bit a; uint3 mode; }};\n{DEVICE}void f(int c)\n{{\n    g->mode = c ? 2 : 9;\n}}\n"
    return driver(folder, text, "5:23", "9 does not fit into the 3 bits of 'mode', which take 0 to 7")


@case
def driver_constant_that_is_set_besides(folder: Path) -> tuple[str, str]:
    text = f"bfGroup G {{ bit a; }};\n{DEVICE}void f(void)\n{{\n    g->a = 1;\n    g->a |= 2;\n}}\n"
    return driver(folder, text, "6:13", "2 does not fit into the bit 'a', which takes 0 and 1")


@case
def driver_constant_in_a_whole_register(folder: Path) -> tuple[str, str]:
    text = f"bfGroup R {{ bit a; uint3 mode; }};\nbfGroup G {{ bfGroup R r; }};\n{DEVICE}"
    text += "void f(void) { g->r = (bfGroup R){ .a = 1, .mode = -5 }; }\n"
    return driver(folder, text, "4:52", "-5 does not fit into the 3 bits of 'mode', which take 0 to 7")


@case
def driver_value_of_another_enumeration(folder: Path) -> tuple[str, str]:
    text = f"{FITTING}bfGroup G {{ bit bf_enum(Speed) speed; }};\n{DEVICE}void f(void) {{ g->speed = MORE; }}\n"
    return driver(folder, text, "5:27", "'MORE' is no value of 'speed', which takes SLOW, FAST")


def described(folder: Path, a: str, b: str, place: str, words: str) -> tuple[str, str]:
    """A driver over a register with fields A and B at the given bits."""
    (folder / "dev.c").write_text(f"bfGroup G {{ bit a; uint2 b; }};\n{DEVICE}void f(void) {{ g->a = 1; g->b = 1; }}\n")
    fields = "".join(
        f"            <field><name>{name}</name><bitRange>{bits}</bitRange></field>\n"
        for name, bits in (("A", a), ("B", b))
    )
    (folder / "chip.svd").write_text(SVD.format(fields=fields))
    return f"{DRIVER} --layout fixed:chip.svd", caret(folder / "chip.svd", place, words)


SVD = """<device>
  <name>CHIP</name>
  <peripherals>
    <peripheral>
      <name>G</name>
      <baseAddress>0x40000000</baseAddress>
      <registers>
        <register>
          <name>CTRL</name>
          <addressOffset>0</addressOffset>
          <size>32</size>
          <fields>
{fields}          </fields>
        </register>
      </registers>
    </peripheral>
  </peripherals>
</device>
"""


@case
def svd_fields_that_overlap(folder: Path) -> tuple[str, str]:
    return described(folder, "[1:1]", "[1:0]", "14:13", "field 'B' of register 'CTRL' overlaps field 'A'")


@case
def svd_field_wider_than_its_register(folder: Path) -> tuple[str, str]:
    return described(folder, "[0:0]", "[32:31]", "14:13", "field 'B' ends at bit 32, and register 'CTRL' has 32")


@case
def svd_field_of_another_width(folder: Path) -> tuple[str, str]:
    command, _ = described(folder, "[0:0]", "[3:1]", "1:1", "")
    return command, caret(folder / "dev.c", "1:26", "'b' has 2 bits, and 3 in chip\\.svd")


@case
def svd_that_is_no_xml(folder: Path) -> tuple[str, str]:
    command, _ = described(folder, "[0:0]", "[2:1]", "1:1", "")
    (folder / "chip.svd").write_text("<device>\n  <name>CHIP</nam>\n</device>\n")
    return command, caret(folder / "chip.svd", "2:15", "not XML: mismatched tag")


@case
def overlay_with_an_unknown_key(folder: Path) -> tuple[str, str]:
    command, _ = described(folder, "[0:0]", "[2:1]", "1:1", "")
    (folder / "chip.overlay.yaml").write_text("fields:\n  G.CTRL.A: {plan: true}\n")
    return command, r"chip\.overlay\.yaml:2:14: error: unknown key 'plan'; did you mean 'plain'\?"


@case
def profile_of_an_unknown_function(folder: Path) -> tuple[str, str]:
    (folder / "dev.c").write_text(f"bfGroup G {{ bit a; }};\n{DEVICE}void set_a(int v) {{ g->a = v; }}\n")
    (folder / "calls.yaml").write_text("functions:\n  sat_a: 5\n")
    return f"{DRIVER} --profile calls.yaml", (
        r"calls\.yaml:2: error: the driver has no function 'sat_a'; did you mean 'set_a'\?"
    )


@case
def profile_of_a_fixed_layout(folder: Path) -> tuple[str, str]:
    command, _ = described(folder, "[0:0]", "[2:1]", "1:1", "")
    return f"{command} --profile calls.yaml", "error: option 'profile': a fixed layout leaves nothing to choose"
