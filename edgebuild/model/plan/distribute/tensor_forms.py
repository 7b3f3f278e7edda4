"""Forms in which the search lets devices hold each tensor: by channels, by rows, or on one device alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from ....base.dataclass import dataclass
from .forms import SOURCE, Cluster, Layer, Network, Ranges, Split, split

CROWDED = 0.5  # of the source's RAM: inputs that are larger leave it little for anything else
RUN = 4  # most layers in a row whose halos are computed twice


@dataclass(frozen=True)
class DeviceLimits:
    """Bytes. `arena(search, layer, forms of live tensors, makes)`: what a step takes of each device's RAM."""

    flash: tuple[float, ...]
    ram: tuple[float, ...]
    thesis_arena: bool = False


@dataclass(frozen=True)
class TensorForms:
    """The forms of a problem's tensors.

    `recompute`: most layers in a row whose halos are computed twice. `stages`: others than the source may run layers
    alone.
    """

    network: Network
    cluster: Cluster
    limits: DeviceLimits
    recompute: int = field(default=RUN, kw_only=True)
    stages: bool = field(default=False, kw_only=True)

    @cached_property
    def readers(self) -> list[list[int]]:
        numbers: list[list[int]] = [[] for _ in self.network.tensors]
        for number, layer in enumerate(self.network.layers):
            for tensor in dict.fromkeys(layer.inputs):
                numbers[tensor].append(number)
        for tensor in self.network.results:
            numbers[tensor].append(len(self.network.layers))
        return numbers

    def channels(self, tensor: int) -> Split:
        return Split("P", split(self.network.tensors[tensor].channels, self.cluster.shares))

    @cached_property
    def channel_forms(self) -> list[tuple[Split, ...]]:
        """Of each tensor: channels by shares, and those of which a reader that joins tensors makes such."""
        splits = []
        for tensor, readers in enumerate(self.readers):
            forms = [self.channels(tensor)] if self.divisible(tensor) else []
            for layer in (self.network.layers[n] for n in readers if n < len(self.network.layers)):
                if layer.joins and self.divisible(layer.output):
                    forms.append(self.joined(layer, layer.inputs.index(tensor)))
            splits.append(tuple(dict.fromkeys(forms)))
        return splits

    def divisible(self, tensor: int) -> bool:
        return self.network.tensors[tensor].channels >= len(self.cluster.devices)

    def joined(self, layer: Layer, position: int) -> Split:
        """The channels of an input that lie in the parts of the output."""
        start, count = layer.joins[position], self.network.tensors[layer.inputs[position]].channels
        ends = ([min(max(at - start, 0), count) for at in r] for r in self.channels(layer.output).ranges)
        return Split("P", tuple((first, past) for first, past in ends))

    def rows(self, tensor: int, lean: float = 1.0) -> Split:
        """Rows by shares; `lean`: what the source takes of its share."""
        shares = [s * lean if k == self.cluster.source else s for k, s in enumerate(self.cluster.shares)]
        return Split("F", split(self.network.tensors[tensor].rows, [s / sum(shares) for s in shares]))

    @cached_property
    def leans(self) -> tuple[float, ...]:
        """Rows of the source, in parts of its share: none, too, where the inputs leave it little room."""
        inputs = sum(self.network.tensors[t].bytes for t in self.network.inputs)
        room = self.limits.ram[self.cluster.source] if self.limits.ram else float("inf")
        others = any(s for k, s in enumerate(self.cluster.shares) if k != self.cluster.source)
        return (1.0,) if not others or self.limits.thesis_arena or inputs < CROWDED * room else (1.0, 0.0)

    @cached_property
    def row_forms(self) -> list[tuple[Split, ...]]:
        """Of each tensor: equal rows, and what up to `recompute` layers behind it need for theirs."""
        splits: list[tuple[Split, ...]] = [() for _ in self.network.tensors]
        for tensor in reversed(range(len(self.network.tensors))):
            enough = self.network.tensors[tensor].rows >= len(self.cluster.devices)
            forms = [self.rows(tensor, lean) for lean in self.leans] if enough else []
            current, ahead = tensor, list[int]()
            while len(ahead) < self.recompute and len(self.readers[current]) == 1:
                number = self.readers[current][0]
                if number == len(self.network.layers) or self.network.layers[number].window is None:
                    break
                ahead.append(number)
                current = self.network.layers[number].output
                if self.network.tensors[current].rows >= len(self.cluster.devices):
                    forms += [self._back(self.rows(current, lean), ahead, tensor) for lean in self.leans]
            splits[tensor] = tuple(dict.fromkeys(forms))
        return splits

    def _back(self, form: Split, run: Sequence[int], tensor: int) -> Split:
        ranges = form.ranges
        for position, number in reversed(list(enumerate(run))):
            start = tensor if position == 0 else self.network.layers[run[position - 1]].output
            ranges = self.needed(self.network.layers[number], ranges, start)
        return Split("F", ranges)

    def needed(self, layer: Layer, ranges: Ranges, tensor: int) -> Ranges:
        assert layer.window is not None
        rows = self.network.tensors[tensor].rows
        return tuple(layer.window.needed(first, past, rows) for first, past in ranges)

    @cached_property
    def others(self) -> tuple[int, ...]:
        """Devices that may run layers alone, besides the source."""
        every = range(len(self.cluster.devices)) if self.stages else range(0)
        return tuple(k for k in every if k != self.cluster.source)

    def at(self, tensor: int, device: int) -> Split:
        return at(self.network, self.cluster, tensor, device)

    def also_at(self, tensor: int, form: Split, device: int) -> Split | None:
        """The form, of a tensor that some devices have all of, if one more gets it; None: no such form."""
        rows, every = self.network.tensors[tensor].rows, range(len(self.cluster.devices))
        have = {k for k in every if form.ranges[k] == (0, rows)} if form.letter == "F" else {self.cluster.source}
        if form.ring or form.letter not in "SF" or any(r != (0, 0) for k, r in enumerate(form.ranges) if k not in have):
            return None
        return Split("F", tuple((0, rows) if k in have or k == device else (0, 0) for k in every))


def at(network: Network, cluster: Cluster, tensor: int, device: int) -> Split:
    """The form of a tensor that one device has."""
    rows = network.tensors[tensor].rows
    if device == cluster.source:
        return SOURCE
    return Split("F", tuple((0, rows) if k == device else (0, 0) for k in range(len(cluster.devices))))
