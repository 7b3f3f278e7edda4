"""The exported SystemRDL as hardware: PeakRDL's register block in Icarus beside the generated driver.

Each access of the driver is an APB transfer of the simulated register block.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import run
from tests.drivers.machine import BusError, Machine, build

pytest.importorskip("peakrdl_regblock")
BASE = 0x40000000
DRIVER = f"""bfGroup Control {{ bit enable; uint2 parity; uint3 reset(5) bits; bit loop; }};
bfGroup Status {{ bit ro full; bit ro empty; uint4 ro level; }};
bfGroup Uart {{ bfGroup Control CONTROL; bfGroup Status STATUS; uint16 divider; bit w1c overrun; bit w1c framing;
    uint8 rc errors; uint8 data; uint8 filter[4]; }};
make_device(Uart, uart, {BASE:#x});
int initial(void) {{ return uart->CONTROL.bits; }}
void open(int divider)
{{
    uart->CONTROL.enable = 0;
    uart->divider = divider;
    uart->CONTROL = (bfGroup Control){{ .enable = 1, .parity = 2 }};
    uart->CONTROL.loop = 1;
    for (int i = 0; i < 4; i++)
        uart->filter[i] = 3 * i + 1;
}}
int get(void)
{{
    bfGroup Status s = uart->STATUS;
    return s.empty ? -1 : uart->data + 256 * s.level;
}}
int put(int value) {{ int polls = 0; while (uart->STATUS.full) polls++; uart->data = value; return polls; }}
int flags(void)
{{
    int found = uart->overrun + 2 * uart->framing;
    if (uart->overrun)
        uart->overrun = 1;
    return found;
}}
int errors(void) {{ return uart->errors; }}
int sum(void) {{ int s = 0; for (int i = 0; i < 4; i++) s += uart->filter[i]; return s + uart->divider; }}
"""
BENCH = """
module bench;
    reg clk = 0, rst = 1, sel = 0, enable = 0, write = 0;
    reg [31:0] address, data, got;
    wire ready, error;
    wire [31:0] result;
    Uart__in_t hwif_in;
    reg [8*8-1:0] word;
    integer at, value, n;
    Uart dut(.clk(clk), .rst(rst), .s_apb_psel(sel), .s_apb_penable(enable), .s_apb_pwrite(write),
        .s_apb_paddr(address[WIDTH-1:0]), .s_apb_pwdata(data), .s_apb_pready(ready), .s_apb_prdata(result),
        .s_apb_pslverr(error), .hwif_in(hwif_in));
    task cycle; begin #5 clk = 1; #5 clk = 0; end endtask
    initial begin
        hwif_in = 0;
        cycle; cycle; rst = 0; cycle;
        while ($fscanf(32'h80000000, "%s %h %h", word, at, value) == 3) begin
            case (word)
CASES
            default: begin
                sel = 1; write = word == "w"; address = at; data = value;
                cycle; enable = 1; n = 0;
                #1;
                while (!ready && n < 20) begin #4 clk = 1; #5 clk = 0; #1; n = n + 1; end
                got = result;
                cycle; sel = 0; enable = 0; cycle;
                $display("%h", n == 20 || error ? 32'hdeadbeef : got); $fflush;
            end
            endcase
        end
        $finish;
    end
endmodule
"""


def for_icarus(text: str) -> str:
    """The register block in the SystemVerilog that Icarus has: packed structs, no arrays in them, no package."""
    text = re.sub(r"\bstruct \{", "struct packed {", text).replace("automatic ", "").replace("Uart_pkg::", "")
    text = re.sub(r"(\w+)\[(\d+)\];$", _members, text, flags=re.M)
    loop = r"^( *)for\((?:genvar|int) (\w+)=0; \2<(\d+); .*\n((?:\1 +.*\n|\n)*)\1end.*\n"
    text = re.sub(loop, _unrolled, text, flags=re.M)
    text = re.sub(r"^(package .*|endpackage.*|\s*assign hwif_out.*)$", "", text, flags=re.M)
    return re.sub(r"(Uart__in_t hwif_in),\s*output \S+ hwif_out", r"\1", text)


def _members(array: re.Match[str]) -> str:
    return ", ".join(f"{array[1]}_{i}" for i in range(int(array[2]))) + ";"


def _unrolled(loop: re.Match[str]) -> str:
    """The body for each element of an array of registers, of which Icarus has no members of structs."""
    _, name, count, body = loop.groups()
    return "".join(re.sub(rf"\b{name}\b", str(i), body.replace(f"[{name}]", f"_{i}")) for i in range(int(count)))


@dataclass
class Simulation:
    """Registers of a running simulation, in place of a model of them."""

    process: subprocess.Popen[str]
    block: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(base=BASE))
    span: int = 0x1000
    accesses: int = 0

    def ask(self, *words: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(str(w) if isinstance(w, str) else f"{w:x}" for w in words) + "\n")  # type: ignore[str-format]
        self.process.stdin.flush()

    def answer(self) -> int:
        assert self.process.stdout
        self.accesses += 1
        word = self.process.stdout.readline().strip()
        if word in ("", "deadbeef") or not re.fullmatch("[0-9a-f]+", word):
            raise BusError(f"the register block answers '{word}'")
        return int(word, 16)

    def read(self, offset: int, size: int) -> int:
        assert size == 4
        self.ask("r", offset, 0)
        return self.answer()

    def write(self, offset: int, size: int, value: int) -> None:
        assert size == 4
        self.ask("w", offset, value)
        self.answer()


def members(package: str) -> dict[str, str]:
    """Inputs from hardware, as paths below `hwif_in`, by the name of the field and what is set."""
    types = {name: body for body, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", package)}
    paths: dict[str, str] = {}

    def walk(name: str, path: str) -> None:
        for kind, member in re.findall(r"(\w+)(?: \[\d+:\d+\])? (\w+);", types[name]):
            if kind == "logic":
                paths[f"{path.rpartition('.')[2]}.{member}"] = f"hwif_in{path}.{member}"
            else:
                walk(kind, f"{path}.{member}")

    walk("Uart__in_t", "")
    return paths


def simulation(folder: Path) -> tuple[Simulation, dict[str, int]]:
    """The running register block, and the numbers of the inputs from hardware."""
    run(Path(sys.executable).with_name("peakrdl"), "regblock", folder / "case.rdl", "--top", "Uart", "--cpuif",
        "apb3-flat", "-o", folder / "rtl")  # fmt: skip
    package = (folder / "rtl" / "Uart_pkg.sv").read_text()
    inputs = members(package)
    strobes = [i for i, name in enumerate(inputs) if name.endswith(("hwset", "we"))]
    rows = [
        f'            "{i}": begin {path} = value; {f"cycle; {path} = 0;" if i in strobes else ""} end'
        for i, path in enumerate(inputs.values())
    ]
    text = for_icarus(package + (folder / "rtl" / "Uart.sv").read_text())
    width = re.search(r"\[(\d+):0\] s_apb_paddr", text)
    assert width
    bench = BENCH.replace("CASES", "\n".join(rows)).replace("WIDTH", str(int(width[1]) + 1))
    (folder / "all.sv").write_text(text + bench)
    run("iverilog", "-g2012", "-s", "bench", "-o", folder / "all.vvp", folder / "all.sv")
    process = subprocess.Popen(["vvp", "-n", folder / "all.vvp"], stdin=-1, stdout=-1, text=True)
    return Simulation(process), {name: i for i, name in enumerate(inputs)}


@pytest.mark.needs("iverilog", "vvp", "riscv64-unknown-elf-gcc")
def test_the_driver_on_its_register_block(tmp_path: Path) -> None:
    assert shutil.which("vvp")
    build(tmp_path, DRIVER)
    chip, inputs = simulation(tmp_path)

    def hardware(**values: int) -> None:
        for name, value in values.items():
            chip.ask(str(inputs[name.replace("__", ".")]), 0, value)

    try:
        machine = Machine(tmp_path / "case.elf", {"uart": chip})  # type: ignore[dict-item]
        assert machine.call("initial") == 5
        machine.call("open", 1234)
        assert machine.call("initial") == 5  # a whole write gives what it does not name its reset value
        assert machine.call("sum") == 1 + 4 + 7 + 10 + 1234
        hardware(STATUS_empty__next=1)
        assert machine.call("get") == -1
        assert machine.call("put", 0x5A) == 0
        hardware(STATUS_empty__next=0, STATUS_level__next=9)
        assert machine.call("get") == 0x5A + 256 * 9
        hardware(overrun__hwset=1, framing__hwset=1)
        assert machine.call("flags") == 3
        assert machine.call("flags") == 2  # the other flag was not cleared with it
        hardware(errors__next=7, errors__we=1)
        assert machine.call("errors") == 7
        assert machine.call("errors") == 0
        assert chip.accesses > 20
    finally:
        chip.process.kill()
        chip.process.wait()
