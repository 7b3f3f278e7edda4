"""Independent pieces of work: in this process, or on the workers of a dask scheduler, on any number of machines.

`--scheduler tcp://HOST:PORT` of a command names a scheduler that the user started; `pip install edgebuild[workers]`
installs dask. Results come in the order of the pieces, so they are the same with any number of workers. The piece of a
lost worker is run again by another one. Files of a request must have the same path on all machines.

A scheduler runs code of everyone who can connect to it, so it must be in a trusted network.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

from .errors import Diagnostic, EdgebuildError, MissingTool, fail
from .own_code import code_digest
from .progress import warn, warnings

P = TypeVar("P")
T = TypeVar("T")
ENOUGH_S = 20  # timeout in seconds for connecting to a scheduler, and for its first worker
INSTALL = "install dask with `pip install edgebuild[workers]`, here and where the workers run"
_one = threading.Lock()


@dataclass(frozen=True)
class _Answer(Generic[T]):
    """A result, or the diagnostics of an error, and the warnings. An exception itself cannot be sent."""

    results: tuple[T, ...]
    problems: tuple[Diagnostic, ...]
    lacks_tool: bool
    warned: tuple[Diagnostic, ...]


def results(work: Callable[[P], T], pieces: Iterable[P], scheduler: str | None) -> Iterator[T]:
    """Results of `work` for each piece, in order. Without a scheduler they are computed lazily, one after another.

    `work`, pieces and results are pickled, so `work` must be a function of a module. Raises EdgebuildError as `work`
    does, or for a scheduler that cannot be used.
    """
    if scheduler is None:
        yield from map(work, pieces)
        return
    with executor(scheduler) as (pool, _):
        for answer in pool.map(functools.partial(alone, _answer, work, code_digest()), pieces):
            for diagnostic in answer.warned:
                warn(diagnostic)
            if answer.problems:
                raise (MissingTool if answer.lacks_tool else EdgebuildError)(*answer.problems)
            yield answer.results[0]


def _answer(work: Callable[[Any], Any], digest: str, piece: Any) -> _Answer[Any]:
    """Run on the worker. Its code must be that of the command, since other code may have other results."""
    if code_digest() != digest:
        text = "a worker has another version of edgebuild than this command"
        return _Answer((), (Diagnostic(text, hints=("install the same on all machines",)),), False, ())
    earlier = len(warnings())
    try:
        result = work(piece)
    except EdgebuildError as error:
        return _Answer((), error.diagnostics, isinstance(error, MissingTool), tuple(warnings()[earlier:]))
    return _Answer((result,), (), False, tuple(warnings()[earlier:]))


def alone(work: Callable[..., T], *arguments: Any) -> T:
    """Call `work` under a lock, since all threads of a process share its warnings and streams."""
    with _one:
        return work(*arguments)


@contextmanager
def executor(scheduler: str) -> Iterator[tuple[Executor, int]]:
    """A pool that runs functions on the workers of a scheduler, and the number of threads. Raises EdgebuildError."""
    try:
        dask: Any = import_module("distributed")
    except ImportError:
        raise MissingTool(Diagnostic("option 'scheduler': dask is not installed", hints=(INSTALL,))) from None
    hints = ["start one: `dask scheduler`, and on each machine `dask worker tcp://HOST:8786 --nthreads 1`"]
    try:
        client = dask.Client(scheduler, timeout=ENOUGH_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise fail(f"option 'scheduler': cannot reach {scheduler}: {error}", hints=hints) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=ENOUGH_S)
        except TimeoutError:
            raise fail(f"option 'scheduler': {scheduler} has no workers", hints=hints) from None
        yield client.get_executor(pure=False), sum(client.nthreads().values())
