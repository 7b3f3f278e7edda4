"""The cache that machines share: entries by HTTP and fsspec, and servers that are down, slow or hostile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest

from edgebuild.base import cache, progress, remote
from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import ModelRequest, model_outputs, model_request
from edgebuild.cli import main
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


class Server:
    """A server that notes its requests, and may make clients wait. `held`: its files by path."""

    def __init__(self) -> None:
        self.held, self.asked, self.slow = dict[str, bytes](), list[str](), False
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(f"GET {self.path}")
                if server.slow:
                    time.sleep(1.5)
                data = server.held.get(self.path)
                self.send_response(200 if data is not None else 404)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def do_PUT(self) -> None:
                server.asked.append(f"PUT {self.path}")
                server.held[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    cache_server = Server()
    monkeypatch.setenv("EDGEBUILD_REMOTE_CACHE", cache_server.url)
    monkeypatch.setenv("EDGEBUILD_REMOTE_CACHE_WRITE", "1")
    monkeypatch.setenv("EDGEBUILD_CACHE_KEY", "a secret of the team")
    monkeypatch.setattr(remote, "SECONDS", 0.5)
    afresh(monkeypatch, tmp_path, "first")
    yield cache_server
    cache_server.http.shutdown()
    cache_server.http.server_close()


def afresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str) -> None:
    """A process on another machine: its own folder, no warning given yet."""
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / machine))
    monkeypatch.setattr(remote, "_failed", False)
    monkeypatch.setattr(progress, "_warnings", [])
    for once in (cache._secret, cache._warn_entry, cache._warn_remote):
        once.cache_clear()


def files(name: str = "digits", **options: Any) -> tuple[list[ModelRequest], tuple[Artifact, ...]]:
    asked = list[ModelRequest]()

    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        asked.append(request)
        return tuple(Artifact(n, f"{n} {request.tile}".encode()) for n in model_outputs(request.name))

    request = model_request(DIGITS, name, "host", options)
    return asked, cache.compiled(request, [str(DIGITS)], compile_model)


def test_another_machine_compiles_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, first = files()
    assert len(asked) == 1 and sum(path.startswith("/ac/") for path in server.held) == 1
    afresh(monkeypatch, tmp_path, "second")
    server.asked.clear()
    asked, second = files()
    assert not asked and second == first
    server.asked.clear()
    asked, third = files()  # its own cache has it now
    assert not asked and third == first and not server.asked
    assert not capsys.readouterr().err


def test_nothing_is_written_unless_that_is_asked_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEBUILD_REMOTE_CACHE_WRITE")
    files()
    assert not server.held and all(row.startswith("GET") for row in server.asked) and server.asked


def test_a_server_that_is_down_is_one_warning(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEBUILD_REMOTE_CACHE", "http://user:password@127.0.0.1:9")
    for name in ("one", "two", "three"):
        asked, artifacts = files(name)
        assert asked and artifacts
    errors = capsys.readouterr().err
    assert errors.count("warning: the remote cache is not used") == 1 and "password" not in errors


def test_a_slow_server_delays_a_build_once(server: Server) -> None:
    server.slow, began = True, time.monotonic()
    for name in ("one", "two", "three"):
        assert files(name)[0]
    assert time.monotonic() - began < 3 * 1.5


def test_an_entry_of_another_key_is_not_used(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files()
    afresh(monkeypatch, tmp_path, "second")
    monkeypatch.setenv("EDGEBUILD_CACHE_KEY", "of somebody else")
    asked, _ = files()
    assert asked and "EDGEBUILD_CACHE_KEY" in capsys.readouterr().err


def test_damaged_and_swapped_entries_make_no_product(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each product is that of its request, whatever the server has in the place of its entries."""
    right = {tile: files(tile=tile)[1] for tile in ("off", "auto", "rolling")}
    good, rng, compiles = dict(server.held), Random(3), 0
    results = [path for path in good if path.startswith("/ac/")]
    for turn in range(40):
        server.held = dict(good)
        for _ in range(rng.randint(1, 4)):
            path, other = rng.choice(list(good)), rng.choice(results)
            data = bytearray(server.held.get(path, b""))
            how = rng.choice(("flip", "cut", "longer", "swap", "gone", "noise", "empty"))
            if how == "flip" and data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            server.held[path] = {
                "cut": bytes(data[: len(data) // 2]),
                "longer": bytes(data) + b"\0" * 9,
                "swap": good[other],
                "noise": rng.randbytes(rng.randint(0, 300)),
                "empty": b"",
            }.get(how, bytes(data))
            if how == "gone":
                del server.held[path]
        for tile, artifacts in right.items():
            afresh(monkeypatch, tmp_path, f"turn{turn}{tile}")
            monkeypatch.delenv("EDGEBUILD_REMOTE_CACHE_WRITE", raising=False)
            asked, served = files(tile=tile)
            compiles += len(asked)
            assert served == artifacts
    assert 20 < compiles < 110  # some entries were left as they were, and most were not


@pytest.mark.parametrize("scheme", ["file://", "memory://"])
def test_any_url_of_fsspec(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("EDGEBUILD_REMOTE_CACHE", f"{scheme}{tmp_path}/shared")
    _, first = files()
    afresh(monkeypatch, tmp_path, "second")
    asked, second = files()
    assert not asked and second == first and not capsys.readouterr().err


def test_explain_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '{"schema": 1, "kind": "model", "name": "n", "source": "%s", "target": "%s", "output": ".", "options": {%s}}'
    rows = {"a": ("host", ""), "b": ("host", '"tile": "off"'), "c": ("microbit", "")}
    for name, (target, options) in rows.items():
        (tmp_path / f"{name}.req.json").write_text(text % (DIGITS, target, options))
    one, two, three = (str(tmp_path / f"{name}.req.json") for name in rows)
    assert main(["cache", "explain", one, two]) == 1
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["option tile"]
    assert main(["cache", "explain", one, three]) == 1
    output = capsys.readouterr().out
    assert output.startswith("option target:") and "target file host.yaml: " in output
    assert main(["cache", "explain", one, one]) == 0
    capsys.readouterr()
    assert main(["cache", "explain", one]) == 0
    (tmp_path / "elsewhere.json").write_text(capsys.readouterr().out)
    assert main(["cache", "explain", str(tmp_path / "elsewhere.json"), two]) == 1
    assert "option tile" in capsys.readouterr().out
