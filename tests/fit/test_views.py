"""Pages, traces and comparisons: complete, self-contained, readable, and right against the report."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.cli import main
from edgebuild.model.compile import compile_model
from edgebuild.model.views.drawing import (
    COLOURS,
    bar_picture,
    contrast,
    fitted,
    ink_on,
    memory_picture,
    roofline,
    ticks,
)
from edgebuild.model.views.reports import as_junit, comparison, figures, limit_of, page, trace
from tests.conftest import ROOT
from tests.report_schema import FILE, schema

DIGITS = ROOT / "sample_projects/digits/digits.onnx"
CASES = {
    "whole": ("stm32f411", {}),
    "rolled": ("mps2-an386", {"tile": "auto"}),
    "energy": ("stm32f767", {"objective": "energy", "qos": "60"}),
    "levels": ("stm32h743", {"map": "layer"}),
}
Report = dict[str, Any]


@cache
def report(case: str) -> Report:
    target, options = CASES[case]
    artifacts = compile_model(model_request(DIGITS, "digits", target, options))
    return json.loads(next(a.data for a in artifacts if a.name == "digits_report.json"))  # type: ignore[no-any-return]


class Page(HTMLParser):
    """Tables of a page as rows of texts, body and foot apart; addresses that it refers to; style sheets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[dict[str, list[list[str]]]] = []
        self.addresses: list[str] = []
        self.part, self.cell, self.open = "", False, list[str]()
        self.feed(text)
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [tag] if tag not in ("meta", "link") else []
        self.addresses += [v or "" for k, v in attrs if k in ("href", "src", "srcset", "action")]
        if tag == "table":
            self.tables.append({"thead": [], "tbody": [], "tfoot": []})
        elif tag in ("thead", "tbody", "tfoot"):
            self.part = tag
        elif tag == "tr":
            self.tables[-1][self.part].append([])
        elif tag in ("td", "th"):
            self.tables[-1][self.part][-1].append("")
            self.cell = True

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.cell = self.cell and tag not in ("td", "th")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attrs if k in ("href", "src")]

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.tables[-1][self.part][-1][-1] += data


@pytest.mark.parametrize("case", CASES)
def test_columns_of_layers_add_up(case: str) -> None:
    r = report(case)
    for key in ("calls", "macs", "weights_bytes", "estimated_instructions"):
        assert sum(row[key] for row in r["layers"]) == r["totals"][key]
    rom, totals = r["rom"], r["totals"]
    assert totals["weights_bytes"] + totals["padding_bytes"] + rom["header_bytes"] == rom["weights_bytes"]
    assert totals["padding_bytes"] >= 0
    assert totals["macs"] == r["macs"]["generated"]
    assert [row["step"] for row in r["layers"]] == [i for i, s in enumerate(r["schedule"]["steps"]) for _ in s["ops"]]
    if "energy" in r:
        spent = sum(row["energy_uj"] for row in r["layers"])
        assert spent == pytest.approx(sum(y["energy_uj"] for y in r["energy"]["layers"]))


@pytest.mark.parametrize("case", CASES)
def test_a_page_is_one_file_whose_tables_add_up(case: str) -> None:
    text = page([report(case)], report("whole"))
    assert text == page([report(case)], report("whole"))
    assert len(text.encode()) < 300_000
    view = Page(text)
    assert all(address.startswith(("#", "data:")) for address in view.addresses)
    assert not re.search(r"@import|url\((?!#)", text)
    assert "http" not in text
    totalled = [t for t in view.tables if t["tfoot"]]
    assert len(totalled) >= 3
    for table in totalled:
        assert len({len(row) for part in table.values() for row in part}) == 1
        for column, total in enumerate(table["tfoot"][0]):
            if re.fullmatch(r"-?\d+(\.\d+)?", total):
                assert sum(float(row[column]) for row in table["tbody"]) == pytest.approx(float(total))


def test_names_from_a_model_are_words_and_no_markup() -> None:
    r = deepcopy(report("whole"))
    r["layers"][0]["name"] = r["model"]["file"] = '<script>alert("x")</script>&'
    text = page([r])
    assert text.count("<script>") == 1
    Page(text)
    ElementTree.fromstring(memory_picture(r).svg())


@pytest.mark.parametrize("case", CASES)
def test_every_buffer_has_a_box_within_its_lane(case: str) -> None:
    r = report(case)
    own = [b for b in r["layout"]["buffers"] if "view_of" not in b]
    root = ElementTree.fromstring(memory_picture(r).svg())
    titles = [(e, e[0].text or "") for e in root if e.tag.endswith("rect") and len(e)]
    places = [re.search(r": ([\d,]+) B at ([\d,]+), steps (\d+) to (\d+)", title) for _, title in titles]
    drawn = [tuple(int(n.replace(",", "")) for n in match.groups()) for match in places if match]
    assert sorted(drawn) == sorted((b["bytes"], b["offset"], b["first"], b["last"]) for b in own)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for e, _ in titles:
        x, y, w, h = (float(e.get(k, "")) for k in ("x", "y", "width", "height"))
        assert x >= 0 and y >= -0.1 and x + w <= width + 0.1 and y + h <= height
    over = sum("overlaps" in b for b in own)
    assert (sum(title.startswith("in place") for _, title in titles) > 0) == (over > 0)


def test_words_inside_of_boxes_can_be_read_and_are_not_cut() -> None:
    assert min(contrast(ink_on(colour), colour) for colour in COLOURS) >= 4.5
    assert fitted("depthwise", 200) == "depthwise"
    assert fitted("depthwise", 40) == "depth\u2026"
    assert fitted("depthwise", 12) == ""
    for ground, inks in (
        ("#ffffff", ("#1b1f24", "#57606a", "#b3261e")),
        ("#0d1117", ("#e6edf3", "#9aa4af", "#ff8a80")),
    ):
        style = (ROOT / "edgebuild/model/emit/templates/report.html.j2").read_text()
        assert all(ink in style and contrast(ink, ground) >= 4.5 for ink in inks)
    head = {"#f3f5f7": "#1b1f24", "#161b22": "#e6edf3"}
    assert all(contrast(*pair) >= 4.5 for pair in head.items())
    root = ElementTree.fromstring(bar_picture(report("whole")["layers"], "macs", "", "MACs").svg())
    for text in (e for e in root if e.tag.endswith("text")):
        x, size = float(text.get("x", "")), 6.4 * len("".join(text.itertext()))
        assert x - size * (text.get("text-anchor") == "end") >= 0
        assert x + size * (text.get("text-anchor") is None) <= float(root.get("width", "")) + 1


@pytest.mark.parametrize(("most", "marks"), [(8392, 5), (1, 6), (0, 1), (7, 4)])
def test_ticks_are_round_and_within(most: float, marks: int) -> None:
    assert len(ticks(most)) == marks
    assert all(0 <= mark <= most for mark in ticks(most))


def test_points_of_the_roofline_are_below_the_roofs() -> None:
    drawing = roofline(report("whole")["layers"])
    assert drawing is not None
    (roof,) = (s for s in drawing.shapes if s.kind == "polyline")
    corners = [tuple(map(float, pair.split(","))) for pair in roof.points.split()]
    for each in (s for s in drawing.shapes if s.kind == "dot"):
        (x0, y0), (x1, y1), _ = corners
        top = y1 if each.x >= x1 else y0 + (y1 - y0) * (each.x - x0) / (x1 - x0)
        assert each.y >= top - 0.2
    assert roofline([row for row in report("whole")["layers"] if not row["macs"]]) is None


@pytest.mark.parametrize("case", CASES)
def test_a_trace_has_the_steps_one_after_the_other(case: str) -> None:
    r = report(case)
    events = json.loads(trace([r, r]))["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "C"}
    assert {e["pid"] for e in events} == {1, 2}
    steps = [e for e in events if e["ph"] == "X" and e["pid"] == 1 and e["tid"] == 1]
    assert [e["name"] for e in steps] == r["schedule"]["order"]
    for a, b in pairwise(steps):
        assert b["ts"] == pytest.approx(a["ts"] + a["dur"])
    if "estimated_time_us" in r["totals"]:
        assert sum(e["dur"] for e in steps) == pytest.approx(r["totals"]["estimated_time_us"], abs=0.01)
    ops = [e for e in events if e["ph"] == "X" and e["pid"] == 1 and e["tid"] == 2]
    assert [e["name"] for e in ops] == [row["name"] for row in r["layers"]]
    assert ("copies of" in json.dumps(events)) == (case == "levels")


def test_counters_of_a_trace_have_the_live_bytes() -> None:
    r = report("whole")
    counters = [e["args"]["live"] for e in json.loads(trace([r]))["traceEvents"] if e["ph"] == "C"]
    assert max(counters) <= r["ram"]["arena_bytes"]
    assert counters[-1] == 0


def test_a_comparison_names_what_differs() -> None:
    old, new = report("whole"), deepcopy(report("whole"))
    assert not comparison(old, new)["ops"]["changed"]
    assert all(row["change"] == 0 for row in comparison(old, new)["figures"])
    new["ram"]["arena_bytes"] += 138
    new["layers"][1]["macs"] += 1
    new["layers"][2]["name"] = "new"
    new["inputs"][0]["scale"] = 0.5
    result = comparison(old, new)
    assert next(row for row in result["figures"] if row["figure"] == "arena")["change"] == 10
    assert result["ops"]["added"] == ["new"]
    assert result["ops"]["removed"] == [old["layers"][2]["name"]]
    assert [row["name"] for row in result["ops"]["changed"]] == [old["layers"][1]["name"]]
    assert result["surface"] == [{"port": "input 0", "scale": [old["inputs"][0]["scale"], 0.5]}]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("arena>+2%", True),
        ("arena>+11%", False),
        ("arena > +137", True),
        ("arena>+138", False),
        ("arena>=+138", True),
        ("arena<1K", False),
        ("arena>1K", True),
        ("arena<-1", False),
        ("flash>+0%", False),
    ],
)
def test_limits(text: str, broken: bool) -> None:
    old, new = report("whole"), deepcopy(report("whole"))
    assert old["ram"]["arena_bytes"] == 1380
    new["ram"]["arena_bytes"] = 1518
    result = comparison(old, new, [limit_of(text)])
    assert result["limits"] == [{"limit": text, "broken": broken}]
    root = ElementTree.fromstring(as_junit(result))
    assert root.get("failures") == str(int(broken))
    assert len(root.findall("testcase/failure")) == broken


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arena", "'arena' is no condition"),
        ("arenas>+2%", "no figure 'arenas'; did you mean 'arena'?"),
        ("arena>2%", "has a sign"),
        ("arena>+x%", "is no condition"),
        ("arena>+2Q", "is not a size"),
        ("energy>+2%", "the old report has no 'energy'"),
    ],
)
def test_wrong_limits(text: str, message: str) -> None:
    with pytest.raises(EdgebuildError, match=re.escape(message)):
        comparison(report("whole"), report("whole"), [limit_of(text)])


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {case: tmp_path / f"{case}.json" for case in CASES}
    for case, file in files.items():
        file.write_text(json.dumps(report(case)))
    whole, rolled = str(files["whole"]), str(files["rolled"])
    out, events = tmp_path / "r.html", tmp_path / "t.json"
    assert main(["report", whole, rolled, "-o", str(out), "--trace", str(events), "--compare", rolled]) == 0
    assert "changes since" in out.read_text() and json.loads(events.read_text())["traceEvents"]
    assert main(["diff", rolled, whole, "--json", "-"]) == 0
    compared = json.loads(capsys.readouterr().out)
    arena = next(row for row in compared["figures"] if row["figure"] == "arena")
    assert (arena["old"], arena["new"]) == tuple(figures(report(c))["arena"] for c in ("rolled", "whole"))
    junit = tmp_path / "d.xml"
    assert main(["diff", rolled, whole, "--fail-if", "arena>+2%", "--fail-if", "macs>+2%", "--junit", str(junit)]) == 1
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert "BROKEN arena>+2%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{}", "not a report of a model"),
        ("[1", "not a report:"),
        ({"rom": 1}, "not a report as edgebuild writes it: TypeError"),
        ({"schema": 1}, "a report of schema 1, and this is edgebuild with schema 2"),
    ],
)
def test_wrong_reports(wrong: str | Report, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(wrong if isinstance(wrong, str) else json.dumps(report("whole") | wrong))
    assert main(["report", str(tmp_path / "r.json"), "-o", str(tmp_path / "r.html")]) == 1
    assert message in capsys.readouterr().err
    assert main(["diff", str(tmp_path / "r.json"), str(tmp_path / "r.json")]) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "r.html").exists()


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["report", str(DIGITS)], "nothing to write"),
        (["report", str(DIGITS), "-o", "r.html"], "models need --target"),
        (["diff", str(DIGITS), str(DIGITS)], "models need --target"),
        (["report"], "no model"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_the_schema_is_the_table_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    assert FILE.read_text() == schema(), "run `python -m tests.report_schema`"
    assert main(["report", "--schema"]) == 0
    stated = json.loads(capsys.readouterr().out)
    for r in map(report, CASES):
        assert check(r, stated) == []


def check(value: Any, stated: dict[str, Any], path: str = "") -> list[str]:
    """Places where a value does not keep to the JSON Schema: types, members, required members."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    if "type" in stated and not isinstance(value, kinds[stated["type"]]):  # type: ignore[arg-type]
        return [f"{path}: {value!r}"]
    if isinstance(value, list):
        return [bad for item in value for bad in check(item, stated.get("items", {}), f"{path}[]")]
    if not isinstance(value, dict):
        return [] if stated.get("const", value) == value else [f"{path}: const"]
    members, more = stated.get("properties", {}), stated.get("additionalProperties", False)
    bad = [f"{path}.{name} is missing" for name in stated.get("required", ()) if name not in value]
    for name, item in value.items():
        inner = members.get(name, more)
        bad += check(item, inner, f"{path}.{name}") if inner is not False else [f"{path}.{name} is not stated"]
    return bad
