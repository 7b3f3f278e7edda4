"""Numbers with a unit that no command measures: limits that the code states, datasheets, sizes of an example."""

from __future__ import annotations

LIMIT = "a limit or a default, which the code states"
PART = "a memory of a chip, from its datasheet, as hal/targets has it"
EXAMPLE = "chosen for the example"
PAPER = "from a paper, named beside it"
RTL = "counted on RTL that is no part of the project, as tests/figures/rtl.yaml has it"
FORMAT = "a property of a format"
ROUGH = "a rough word of experience, said as such"

GIVEN = (  # page, pattern of the words with the number, kind
    ("SECURITY.md", r"10 seconds of the processor", LIMIT),
    ("README.md", r"144x144 \(1\.7 MB\)|RAM of 500,000 B", EXAMPLE),
    ("docs/add-a-chip.md", r"above the first 64 KB", PART),
    ("docs/choose-a-chip.md", r"an inference in 50 ms", EXAMPLE),
    ("docs/choose-a-chip.md", r"differ by less than 3 % of flash|with a kilobyte of weights", LIMIT),
    ("docs/choose-a-chip.md", r"within about 12 % of", ROUGH),
    ("docs/clocks.md", r"0 is 30 ms", EXAMPLE),
    ("docs/clocks.md", r"over 2 % where a bus is slower than 2\.9 MHz, as behind 8 MHz", LIMIT),
    ("docs/debugging.md", r"within 1 %", ROUGH),
    ("docs/distribute.md", r"travel as 3 bytes|partial sums take 4 bytes", FORMAT),
    (
        "docs/distribute.md",
        r"RAM are 500,000 bytes|input of 62,208 bytes|has 60,000 bytes|weights, 442,464 bytes",
        EXAMPLE,
    ),
    ("docs/distribute.md", r"\d+ bytes for each message|three frames of \d+ bytes|a head of 24 bytes", FORMAT),
    ("docs/distribute.md", r"up to 11 kB|passes is 0\.5 %", PAPER),
    ("docs/distribute.md", r"takes 6 seconds", ROUGH),
    ("docs/figures.md", r"lines of 16 bytes|reads of 8 bytes", PART),
    ("docs/integrate.md", r"24 KB from", EXAMPLE),
    ("docs/memory-levels.md", r"set C is 35 %|above 234 MHz", PAPER),
    ("docs/memory-levels.md", r"take 2 to 10 % more there", EXAMPLE),
    ("docs/memory-levels.md", r"needs 1\.2 MB|has 0\.86 MB|0\.30 MB of code", EXAMPLE),
    ("docs/memory-levels.md", r"64 KB have no room|lines of 32 bytes", PART),
    ("docs/memory-levels.md", r"within 2 % of the fastest|36 bytes each|100 cycles for the hand-over", LIMIT),
    ("docs/memory-levels.md", r"moves 125,952 B|instead of 183,296 B", EXAMPLE),
    ("docs/models.md", r"less than 128 times", FORMAT),
    ("docs/rtl.md", r"caches of 4 KB", PART),
    ("docs/rtl.md", r"more than 2,000 cycles is\s+0\.2 %", RTL),
    ("docs/tiling.md", r"aims at 10 %|compute 10 % of|about 3 % more|at most 10 % more|up to 4 bytes", LIMIT),
    ("docs/tiling.md", r"up to 8 % too low", ROUGH),
    ("docs/tiling.md", r"take 3\.6 times", FORMAT),
    ("sample_projects/autoencoder_on_two/README.md", r"264,192 bytes of weights", EXAMPLE),
    ("sample_projects/autoencoder_on_two/README.md", r"262,144 bytes of flash", PART),
    ("sample_projects/digits_on_two/README.md", r"5\.9 KB of weights|with 4 KB of flash", EXAMPLE),
    ("sample_projects/mobilenet_in_levels/README.md", r"880 KB of weights", EXAMPLE),
    ("sample_projects/mobilenet_in_levels/README.md", r"64 KB of L1|512 KB of L2|128 KB of DTCM|512 KB of AXI", PART),
    ("sample_projects/rp2040_fixed/README.md", r"14 accesses on their own", EXAMPLE),
)
GIVEN_TABLES = (  # cells of several numbers, registered as sentences; limits of chips, as hal/clocks has them
    ("docs/distribute.md", ""),
    ("docs/clocks.md", "family"),
    ("docs/clocks.md", "boards of"),
)
