"""Train four small networks and write what `edgebuild quantize` begins with.

    python networks.py FOLDER [keywords] [images] [machine] [gestures]

writes for each network `NAME.onnx` in float32, `NAME_samples.npz` and `NAME_labels.npy`. No sample takes part in the
training. Sounds and movements are drawn from a seed by the functions below, images are made of scikit-learn's digits.
One core trains each network in less than two minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

SEED = 1
BATCH = 64
Reals = NDArray[np.float32]
Random = np.random.Generator
Data = tuple[Reals, NDArray[np.int64]]  # samples [count, ...], the class of each


# Sounds ----------------------------------------------------------------------------------------------------------

RATE = 8000  # samples a second
FRAME, HOP = 256, 128  # samples: 32 ms, every 16 ms


def log_mel(sound: Reals, bands: int) -> Reals:
    """Logarithms of the energy of each frame in `bands` of equal width on the mel scale: [frames, bands]."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, FRAME)[::HOP] * np.hanning(FRAME)
    power = np.abs(np.fft.rfft(frames)) ** 2
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), bands + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.fft.rfftfreq(FRAME, 1 / RATE)
    rise = (hertz[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    fall = (edges[2:] - hertz[:, None]) / np.diff(edges)[1:]
    return np.log(power @ np.clip(np.minimum(rise, fall), 0, None) + 1e-2).astype(np.float32)


WORDS = (  # the first two formants in Hz, at the beginning, in the middle and at the end of a word
    ((300, 2300), (300, 2300), (300, 2300)),
    ((300, 2300), (500, 1500), (700, 1100)),
    ((700, 1100), (500, 1500), (300, 2300)),
    ((700, 1100), (700, 1100), (700, 1100)),
    ((300, 800), (500, 1500), (300, 800)),
    ((300, 800), (300, 800), (500, 1900)),
    ((500, 1900), (300, 800), (500, 1900)),
    ((500, 1900), (700, 1100), (300, 800)),
)


def word(random: Random, kind: int) -> Reals:
    """Half a second of log-mel features, [1, 30, 20], in which a voice with its own pitch says a word in noise."""
    length = int(RATE * random.uniform(0.25, 0.42))
    time = np.linspace(0, 1, length)
    voice = np.exp(random.normal(0, 0.09))  # long and short vocal tracts
    pitch = random.uniform(90, 220) * np.exp(random.normal(0, 0.15) * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    spoken = np.zeros(length)
    formants = np.array(WORDS[kind]) * voice * np.exp(random.normal(0, 0.05, (3, 2)))
    f1, f2 = (np.interp(time, (0, 0.5, 1), formants[:, i]) for i in (0, 1))
    for n in range(1, 30):  # harmonics of the pitch, as loud as the formants let them be
        tone = n * pitch
        loud = np.exp(-(((tone - f1) / 130) ** 2)) + 0.6 * np.exp(-(((tone - f2) / 200) ** 2))
        spoken += np.where(tone < RATE / 2, loud * np.sin(n * phase), 0)
    spoken *= np.minimum(1, 8 * np.minimum(time, 1 - time)) * np.exp(random.normal(0, 0.4))
    sound = random.normal(0, np.exp(random.uniform(-3, -0.7)), RATE // 2)
    start = random.integers(RATE // 2 - length)
    sound[start : start + length] += spoken
    return log_mel(sound, 20)[None] / 4


def machine(random: Random, broken: int) -> Reals:
    """Five frames of 32 bands, [160], of a motor; one that is `broken` also knocks or whines, or its load varies."""
    time = np.arange(FRAME + 4 * HOP) / RATE
    turns = random.uniform(27, 33)  # a second
    strength = 1 + 0.2 * random.normal(0, 1)
    phase = 2 * np.pi * turns * time + random.uniform(0, 2 * np.pi)
    sound = strength * sum(np.sin(n * phase + random.uniform(0, 6)) / n for n in (1, 2, 3, 6, 12, 24, 48))
    fault = random.integers(3) if broken else -1
    size = random.uniform(0.05, 0.8)
    if fault == 0:
        knocks = (random.uniform(0, 2 * np.pi) + 7 * phase) % (2 * np.pi) < 0.5
        sound += 3 * size * knocks * random.normal(0, 1, len(time))
    if fault == 1:
        sound += 0.5 * size * np.sin(2 * np.pi * random.uniform(900, 3500) * time)
    if fault == 2:
        sound *= 1 + 1.2 * size * np.sin(5 * phase)
    return log_mel(sound + random.normal(0, 0.15, len(time)), 32).ravel() / 4


# Movements -------------------------------------------------------------------------------------------------------

STEPS = 32


def gesture(random: Random, kind: int) -> Reals:
    """Acceleration on three axes, in g / 2, at 32 times, [32, 3], of a hand that draws one of six figures."""
    time = np.linspace(0, 1, STEPS) ** np.exp(random.normal(0, 0.2))
    t = 2 * np.pi * time
    still = np.zeros(STEPS)
    figures = (
        (np.cos(t), np.sin(t)),  # a circle, and one the other way round
        (np.cos(t), -np.sin(t)),
        (np.cos(t), np.sin(2 * t)),  # an eight
        (np.sin(t), still),  # there and back
        (np.sign(np.sin(2 * t)), still),  # two knocks
        (np.sin(t * 4), np.sin(t * 4)),  # a shake
    )
    x, y = figures[kind]
    tilt = random.normal(0, 0.35, 3)
    turn = np.array([[1, -tilt[2], tilt[1]], [tilt[2], 1, -tilt[0]], [-tilt[1], tilt[0], 1]])
    strength = np.exp(random.normal(0, 0.3))
    path = strength * np.stack([x, y, 0.2 * np.sin(t + random.uniform(0, 6))], 1)
    return (((path + np.array([0, 0, 1])) @ turn + random.normal(0, 0.3, (STEPS, 3))) / 2).astype(np.float32)


# Images ----------------------------------------------------------------------------------------------------------


def digit_images(count: int, random: Random, which: slice) -> Data:
    """Digits, each in its own colour, size and place on a background of another: [count, 3, 32, 32] in 0..1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    ink, labels = digits.images[which] / 16, digits.target[which]
    chosen = random.integers(len(ink), size=count)
    images = np.empty((count, 3, 32, 32), np.float32)
    for image, k in zip(images, chosen, strict=True):
        size = random.integers(18, 29)
        place = (np.arange(size) + 0.5) * 8 / size - 0.5
        low = np.clip(np.floor(place).astype(int), 0, 6)
        part = np.clip(place - low, 0, 1)
        rows = ink[k][low] * (1 - part[:, None]) + ink[k][low + 1] * part[:, None]
        large = rows[:, low] * (1 - part) + rows[:, low + 1] * part
        mask = np.zeros((32, 32))
        top, left = random.integers(33 - size, size=2)
        mask[top : top + size, left : left + size] = large
        back, front = random.uniform(0, 0.6, 3), random.uniform(0.4, 1, 3)
        shade = np.linspace(-0.15, 0.15, 32) * random.normal(0, 1)
        image[:] = back[:, None, None] + shade + mask * (front - back + 0.2)[:, None, None]
        image += random.normal(0, 0.05, image.shape)
    return images.clip(0, 1), labels[chosen].astype(np.int64)


def drawn(draw: Callable[[Random, int], Reals], classes: int, count: int, random: Random) -> Data:
    """`count` samples of random classes."""
    labels = random.integers(classes, size=count)
    return np.stack([draw(random, int(kind)) for kind in labels]).astype(np.float32), labels


# Networks --------------------------------------------------------------------------------------------------------


def conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, active: nn.Module | None = None
) -> nn.Sequential:
    """A convolution with batch normalisation, and `active` behind it."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), *([active] if active else []))


def separable(channels: int) -> nn.Sequential:
    """A depthwise convolution and a pointwise one."""
    depthwise = conv(channels, channels, 3, groups=channels, active=nn.ReLU())
    return nn.Sequential(depthwise, conv(channels, channels, 1, active=nn.ReLU()))


def ds_cnn() -> nn.Module:
    """DS-CNN (Zhang et al. 2017): [1, 1, 30, 20] -> 8 logits."""
    blocks = [separable(48) for _ in range(4)]
    return nn.Sequential(
        conv(1, 48, 5, 2, active=nn.ReLU()), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, len(WORDS))
    )


class Inverted(nn.Module):
    """The block of MobileNetV2 (Sandler et al. 2018): it widens, filters each channel, narrows, and adds its input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inputs
        self.layers = nn.Sequential(
            conv(inputs, wide, 1, active=nn.ReLU6()),
            conv(wide, wide, 3, stride, wide, active=nn.ReLU6()),
            conv(wide, outputs, 1),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


def mobilenet() -> nn.Module:
    """A small MobileNetV2: [1, 3, 32, 32] -> 10 logits."""
    shapes = ((8, 12, 2), (12, 12, 1), (12, 20, 2), (20, 20, 1), (20, 20, 1))
    return nn.Sequential(
        conv(3, 8, 3, 2, active=nn.ReLU6()),
        *(Inverted(*shape) for shape in shapes),
        conv(20, 80, 1, active=nn.ReLU6()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(80, 10),
    )


def autoencoder() -> nn.Module:
    """[1, 160] -> the same, through 8 values (the shape of MLPerf Tiny's, with fewer layers)."""
    sizes = (160, 64, 64, 8, 64, 64)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], sizes[0]))


class Gru(nn.Module):
    """[1, 32, 3] -> 6 logits of the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 24, batch_first=True)
        self.classifier = nn.Linear(24, 6)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.gru(x)[0][:, -1])
        return logits


# Training --------------------------------------------------------------------------------------------------------


def train(network: nn.Module, data: Data, epochs: int, loss: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
    """Fit the network to labels, or to its own inputs by this `loss`, and leave it in evaluation mode."""
    samples, labels = map(torch.from_numpy, data)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-2)
    steps = epochs * (len(samples) // BATCH)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=5e-3, total_steps=steps)
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(samples))[: len(samples) // BATCH * BATCH].split(BATCH):
            x = samples[batch]
            error = loss(network(x), x) if loss else cross_entropy(network(x), labels[batch])
            optimiser.zero_grad()
            error.backward()
            optimiser.step()
            rate.step()
    network.eval()


def keywords(random: Random) -> tuple[nn.Module, Data]:
    network = ds_cnn()
    train(network, drawn(word, len(WORDS), 3000, random), epochs=12)
    return network, drawn(word, len(WORDS), 400, random)


def images(random: Random) -> tuple[nn.Module, Data]:
    network = mobilenet()
    train(network, digit_images(6000, random, slice(0, 1347)), epochs=15)
    return network, digit_images(400, random, slice(1347, None))


def motor(random: Random) -> tuple[nn.Module, Data]:
    network = autoencoder()
    train(network, drawn(machine, 1, 6000, random), epochs=40, loss=mse_loss)
    return network, drawn(machine, 2, 800, random)


def gestures(random: Random) -> tuple[nn.Module, Data]:
    network = Gru()
    train(network, drawn(gesture, 6, 3000, random), epochs=20)
    return network, drawn(gesture, 6, 400, random)


NETWORKS = {"keywords": keywords, "images": images, "machine": motor, "gestures": gestures}


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)  # sums in one order, hence the same weights from one run to the next
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or NETWORKS:
        torch.manual_seed(SEED)
        network, (samples, labels) = NETWORKS[name](np.random.default_rng(SEED))
        example = (torch.from_numpy(samples[:1]),)
        torch.onnx.export(network, example, folder / f"{name}.onnx", dynamo=True, external_data=False, verbose=False)
        np.savez_compressed(folder / f"{name}_samples.npz", x=samples)
        np.save(folder / f"{name}_labels.npy", labels.astype(np.uint8))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
