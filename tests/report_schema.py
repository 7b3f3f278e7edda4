"""Writes the JSON Schema of reports from the table of docs/report.md: `python -m tests.report_schema`."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.conftest import ROOT

FILE = ROOT / "edgebuild/model/views/report.schema.json"
TYPES = {"text": "string", "integer": "integer", "number": "number", "boolean": "boolean"}


def schema() -> str:
    text = (ROOT / "docs/report.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| ([^|]+) \|", text, re.MULTILINE)
    top: dict[str, Any] = {"type": "object"}
    for path, kind, when in rows:
        holder, parts = top, path.split(".")
        for number, part in enumerate(parts):
            name = part.removesuffix("[]")
            last = number + 1 == len(parts)
            holder = _member(holder, name, always=when.strip() == "always" and last, whole=not last)
            if part.endswith("[]"):
                holder.setdefault("type", "array")
                holder = holder.setdefault("items", {})
        holder["type"] = TYPES[kind]
    version = json.loads(re.search(r"version of this table: (\d+)", text)[1])  # type: ignore[index]
    top["properties"]["schema"]["const"] = version
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"edgebuild report, schema {version}"}
    return json.dumps({**title, **top}, indent=1) + "\n"


def _member(holder: dict[str, Any], name: str, always: bool, whole: bool) -> dict[str, Any]:
    """The schema of a map's member; `always`: it has to be there. Members of `*` may have any name."""
    holder["type"] = "object"
    if name == "*":
        return holder.setdefault("additionalProperties", {})  # type: ignore[no-any-return]
    holder.setdefault("additionalProperties", False)
    if always and name not in holder.setdefault("required", []):
        holder["required"].append(name)
    member: dict[str, Any] = holder.setdefault("properties", {}).setdefault(name, {})
    return member


if __name__ == "__main__":
    FILE.write_text(schema())
