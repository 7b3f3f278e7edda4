"""Proofs of drivers that compute with floating-point numbers, and of loops without all of their parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver, triple_of
from edgebuild.driver.prove.verdicts import prove

pytest.importorskip("z3")

SOURCE = """bfGroup P { uint8 duty; uint16 raw; bit on; uint4 list[3]; };
make_device(P, p, 0x40000000);
struct pid { float kp, ki, sum; double d; float old[3]; };
void f1(float v) { p->duty = v * 2.55f; p->on = v > 0; }
float f2(void) { return p->raw * (3.3f / 4096); }
double f3(struct pid *s, float want)
{
    float e = want - p->raw;
    s->sum += e * s->ki;
    s->old[1] = e;
    p->duty = s->kp * e + s->sum;
    s->d = -e;
    return s->d ? s->d : 1.0;
}
int f4(float most)
{
    float sum = 0;
    for (int i = 0; i < 3; i++)
        sum += p->raw;
    if (sum >= most && !(sum == 0))
        p->on = 1;
    return sum;
}
void f5(double x) { p->duty *= x; p->raw += 0.5; p->list[1] = x; p->on = !x; }
int f6(int n)
{
    for (; n > 0;) { p->raw = n; n--; }
    for (int i = 0;; i++) { if (i > 2) break; p->duty = i; }
    return n;
}
void f7(float x) { while (x > 1.0f) { p->raw = x; x /= 2; } }
float f8(void) { volatile float z = p->raw; p->raw = z; return z; }
"""
FAULTS = [
    ("v * 2.55f", "v * 2.56f"),
    ("v > 0", "v >= 0"),
    ("3.3f / 4096", "3.3 / 4096"),
    ("want - ", "- want + "),
    ("s->sum += e", "s->sum -= e"),
    ("s->old[1] = e", "s->old[2] = e"),
    ("s->d = -e", "s->d = e"),
    ("sum >= most", "sum > most"),
    ("float sum", "double sum"),
    ("x /= 2", "x *= 2"),
    ("i > 2", "i > 1"),
    ("n > 0", "n > 1"),
    ("return z", "return z + 1"),
    (": 1.0", ": 1.0f + 0"),
]


def test_floating_point_is_proved_and_its_faults_refuted(tmp_path: Path) -> None:
    file = tmp_path / "case.bf.c"
    file.write_text(SOURCE)
    artifacts, driver = compile_driver(DriverRequest((file,), "case", "mps2-an385"))
    triple = triple_of("mps2-an385")
    assert {v.what for v in prove(driver, triple, artifacts)} == {"proved"}
    for old, new in FAULTS:
        text = next(a for a in artifacts if a.name == "case.c").data
        assert old.encode() in text
        wrong = Artifact("case.c", text.replace(old.encode(), new.encode()))
        results = prove(driver, triple, tuple(wrong if a.name == "case.c" else a for a in artifacts))
        assert [v.what for v in results].count("refuted") == 1, (old, new)
