"""The C that ships: free of warnings under every compiler, and linked where it should be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.target import firmware_support, hal_dir, link_flags, load_target
from tests.conftest import run
from tests.firmware import fake
from tests.firmware.fake import STRICT

COMMON = ["src/mem.c", "src/counter.c"]
ARM = ["startup/cortex_m.c", "src/semihost.c", *COMMON]
RISCV = ["startup/riscv.S", "src/semihost.c", *COMMON]
HOST = ["src/semihost_host.c", *COMMON]
BARE = ["-ffreestanding", "-fbuiltin"]


@pytest.mark.parametrize(
    ("compiler", "flags", "sources"),
    [
        pytest.param("arm-none-eabi-gcc", ["-mcpu=cortex-m0", "-mthumb", *BARE], ARM, id="arm-m0"),
        pytest.param("arm-none-eabi-gcc", ["-mcpu=cortex-m55", "-mthumb", *BARE], ARM, id="arm-m55"),
        pytest.param("riscv64-unknown-elf-gcc", [*load_target("riscv-virt").toolchain.cflags], RISCV, id="riscv"),
        pytest.param("gcc", [], HOST, id="host"),
        pytest.param("clang", [], HOST, id="clang-host"),
        pytest.param("clang", ["--target=thumbv7em-none-eabi", *BARE], ARM, id="clang-arm"),
        pytest.param("clang", ["--target=riscv32-unknown-elf", "-march=rv32imc", *BARE], RISCV, id="clang-rv"),
    ],
)
def test_it_compiles_without_a_warning(tmp_path: Path, compiler: str, flags: list[str], sources: list[str]) -> None:
    skip_without(compiler)
    for source in sources:
        run(compiler, *flags, *STRICT, "-I", hal_dir() / "include", "-c", hal_dir() / source, "-o", tmp_path / "x.o")


def test_the_memory_functions_do_what_those_of_the_c_library_do(tmp_path: Path) -> None:
    skip_without("gcc")
    (tmp_path / "test.c").write_text(MEM_TEST)
    renamed = [f"-D{f}=own_{f}" for f in ("memcpy", "memmove", "memset", "memcmp", "strlen")]
    flags = ["-O2", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    # -fno-builtin: the functions under their own names, not the compiler's idea of them
    run("gcc", *flags, "-fno-builtin", "-ffreestanding", "-I", hal_dir() / "include", *renamed, "-c",
        hal_dir() / "src/mem.c", "-o", tmp_path / "mem.o")  # fmt: skip
    run("gcc", *flags, tmp_path / "test.c", tmp_path / "mem.o", "-o", tmp_path / "test")
    run(tmp_path / "test")


MEM_TEST = """\
#include <assert.h>
#include <stdint.h>
#include <string.h>
void *own_memcpy(void *, const void *, size_t);
void *own_memmove(void *, const void *, size_t);
void *own_memset(void *, int, size_t);
int own_memcmp(const void *, const void *, size_t);
size_t own_strlen(const char *);
int main(void)
{
    static uint8_t from[128], a[128], b[128];
    for (int i = 0; i < 128; ++i) from[i] = (uint8_t)(i * 7 + 1);
    for (size_t to = 0; to < 5; ++to) for (size_t at = 0; at < 5; ++at) for (size_t n = 0; n < 70; ++n) {
        memset(a, 0, 128); memset(b, 0, 128);
        assert(own_memcpy(a + to, from + at, n) == a + to);
        memcpy(b + to, from + at, n);
        assert(memcmp(a, b, 128) == 0);
        assert(own_memset(a + to, (int)at - 3, n) == a + to);
        memset(b + to, (int)at - 3, n);
        assert(memcmp(a, b, 128) == 0);
        memcpy(a, from, 128); memcpy(b, from, 128);
        assert(own_memmove(a + to, a + at, n) == a + to);
        memmove(b + to, b + at, n);
        assert(own_memcmp(a, b, 128) == 0);
        b[to + n] ^= 0x80;
        assert((own_memcmp(a, b, 128) < 0) == (memcmp(a, b, 128) < 0));
    }
    assert(own_strlen("") == 0 && own_strlen("abc") == 3);
    return 0;
}
"""


class Linker:
    """Links a program with the fake models of the given fragments; strict about warnings and orphans."""

    def __init__(self, name: str, folder: Path) -> None:
        self.target, self.folder = load_target(name), folder
        skip_without(self.target.toolchain.compiler)
        publish(firmware_support(self.target), folder)
        self.regions = (self.target.memory("weights").name, self.target.memory("arena").name)

    def __call__(self, fragments: dict[str, str], used: tuple[str, ...]) -> dict[str, tuple[str, int]]:
        """Section and address of every symbol, by name."""
        for model in ("model", "other"):
            text = fake.ASM.replace("model", model)
            (self.folder / f"{model}.S").write_text(text.replace(f'.incbin "{model}_weights.bin"', ".space 64"))
        extern = [f"extern char {m}_arena[]; extern const char {m}_weights[];" for m in used]
        body = [f"{m}_arena[1] = {m}_weights[2];" for m in used]
        (self.folder / "main.c").write_text("\n".join([*extern, "int main(void) {", *body, "return 0; }", ""]))
        for model, text in fragments.items():
            (self.folder / f"{model}_memory.ld").write_text(text.replace("model", model))
        startup = [hal_dir() / s for s in self.target.firmware.startup] if self.target.firmware else []
        tools = self.target.toolchain
        command = [tools.compiler, *tools.cflags, "-I", str(hal_dir() / "include"), "-Wl,--fatal-warnings",
                   "-Wl,--orphan-handling=error", *link_flags(self.target, tuple(f"{m}_memory.ld" for m in fragments)),
                   "main.c", "model.S", "other.S", *map(str, startup), *tools.libs, "-o", "x.elf"]  # fmt: skip
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(done.stderr)
        listing = run(tools.prefix + "objdump", "-t", "x.elf", cwd=self.folder)
        rows = [line.split() for line in listing.splitlines() if len(line.split()) >= 5]
        return {row[-1]: (row[-3], int(row[0], 16)) for row in rows if row[0].isalnum()}


@pytest.fixture(params=["mps3-an547", "riscv-virt"])
def linker(request: pytest.FixtureRequest, tmp_path: Path) -> Linker:
    return Linker(request.param, tmp_path)


def inside(target: str, memory: str, address: int) -> bool:
    region = next(m for m in load_target(target).memories if m.name == memory)
    return region.origin <= address < region.origin + region.size


def test_without_fragments_everything_goes_to_the_first_memory_of_its_role(linker: Linker) -> None:
    symbols = linker({}, used=("model", "other"))
    for name in ("model", "other"):
        assert inside(linker.target.name, linker.regions[0], symbols[f"{name}_weights"][1])
        assert inside(linker.target.name, linker.regions[1], symbols[f"{name}_arena"][1])


def test_fragments_of_two_models_place_weights_and_arenas(linker: Linker) -> None:
    weights, arena = ("SRAM", "SRAM2") if linker.target.name == "mps3-an547" else linker.regions
    symbols = linker(
        {"model": fake.fragment(weights, arena), "other": fake.fragment(*linker.regions)}, used=("model", "other")
    )
    assert symbols["model_weights"][0] == ".edgebuild.model.weights"
    assert inside(linker.target.name, weights, symbols["model_weights"][1])
    assert inside(linker.target.name, arena, symbols["model_arena"][1])
    assert inside(linker.target.name, linker.regions[1], symbols["other_arena"][1])


def test_a_model_that_nobody_calls_leaves_nothing(linker: Linker) -> None:
    fragment = fake.fragment(*linker.regions)
    symbols = linker({"model": fragment, "other": fragment}, used=("other",))
    assert "other_arena" in symbols and "model_arena" not in symbols


def test_an_arena_that_does_not_fit_is_reported_in_words(linker: Linker) -> None:
    script = next(linker.folder.glob("*_regions.ld"))
    ram = linker.regions[1]
    lines = [f"{line.split('LENGTH')[0]}LENGTH = 0x2080" if line.startswith(f"  {ram} :") else line
             for line in script.read_text().splitlines()]  # fmt: skip
    script.write_text("\n".join(lines) + "\n")
    with pytest.raises(AssertionError, match=f"its arena of 192 bytes does not fit into what is left of memory {ram}"):
        linker({"model": fake.fragment(*linker.regions)}, used=("model",))


@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        ("mkl25z128", 0x400, [0xFFFFFFFF] * 3 + [0xFFFFFFFE]),  # FSEC of 0xFE: not secured
        ("lpc824", 0x2FC, [0xFFFFFFFF]),
        ("lpc54608j512", 0x20, [0xFFFFFFFF, 0, 0]),
        ("lpc55s69", 0x20, [0, 0, 0]),
        ("ra4m1", 0x400, [0xFFFFFFFF] * 16),
        ("rp2350", 0x200, [0xFFFFDED3, 0x10210142, 0x1FF, 0, 0xAB123579]),
        ("rp2350-riscv", 0x200, [0xFFFFDED3, 0x11010142, 0x1FF, 0, 0xAB123579]),
    ],
)
def test_a_boot_rom_finds_its_words(name: str, at: int, words: list[int], tmp_path: Path) -> None:
    """A Kinetis whose FSEC has the bytes of an instruction locks itself for good."""
    linker = Linker(name, tmp_path)
    linker({}, used=("model",))
    run(linker.target.toolchain.prefix + "objcopy", "-O", "binary", "x.elf", "x.bin", cwd=tmp_path)
    image = np.frombuffer((tmp_path / "x.bin").read_bytes()[:0x440], "<u4")
    assert [*image[at // 4 :][: len(words)]] == words
    firmware = linker.target.firmware
    assert firmware and (int(image[:8].sum(dtype=np.uint64)) % 2**32 == 0) == firmware.vector_sum
    assert name != "lpc55s69" or image[7] % 2, "the handler of SecureFault"


def skip_without(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"not installed: {program}")
