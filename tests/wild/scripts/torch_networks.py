"""Networks of PyTorch by both of its exporters, and quantised by onnxruntime: `torch_networks.py FOLDER`.

Runs in an environment with torch, onnx, onnxscript and onnxruntime; it knows nothing of edgebuild.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn

warnings.filterwarnings("ignore")


class Separable(nn.Module):
    """Keyword spotting: 3x3 depthwise and 1x1 layers with batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(1, 24, (10, 4), (2, 2), (4, 1)), nn.BatchNorm2d(24), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.ReLU(),
                       nn.Conv2d(24, 24, 1), nn.BatchNorm2d(24), nn.ReLU()]  # fmt: skip
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 1, 1)
        self.a, self.b = nn.Conv2d(16, 32, 3, 2, 1), nn.Conv2d(32, 32, 3, 1, 1)
        self.side = nn.Conv2d(16, 32, 1, 2)
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.b(torch.relu(self.a(x))) + self.side(x))
        return torch.softmax(self.last(x.mean((2, 3))), -1)


class Inverted(nn.Module):
    """A block of MobileNetV3: expansion, depthwise 5x5, squeeze and excitation, hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depthwise = nn.Conv2d(16, 64, 1), nn.Conv2d(64, 64, 5, 1, 2, groups=64)
        self.squeeze, self.excite = nn.Conv2d(64, 16, 1), nn.Conv2d(16, 64, 1)
        self.project, self.act = nn.Conv2d(64, 16, 1), nn.Hardswish()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.depthwise(self.act(self.expand(x))))
        gate = torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(y, 1)))
        return x + self.project(y * nn.functional.hardsigmoid(self.excite(gate)))


class ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 7, 1, 3, groups=16)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(nn.functional.gelu(self.up(y))).permute(0, 3, 1, 2)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, 1, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.up, self.c = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(self.a(x))
        b = nn.functional.leaky_relu(self.b(a), 0.1)
        return torch.sigmoid(self.c(torch.cat([a, self.up(b)], 1)))


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.boxes, self.scores = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 8, 1), nn.Conv2d(16, 6, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = nn.functional.silu(self.body(x))
        y = nn.functional.interpolate(y, scale_factor=2.0, mode="nearest")
        return self.boxes(y).flatten(2).transpose(1, 2), self.scores(y).flatten(2).transpose(1, 2).sigmoid()


class Temporal(nn.Module):
    """Dilated causal convolutions over time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=d) for d in (1, 2, 4))
        self.head = nn.Conv1d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(nn.functional.pad(x, (2 * layer.dilation[0], 0))))
        return self.head(x)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(10, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(x)).mean(1))


class Attention(nn.Module):
    """Scaled dot products with a causal mask and rotary positions, root-mean-square norm."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.gain = nn.Linear(32, 96), nn.Linear(32, 32), nn.Parameter(torch.ones(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.gain
        q, k, v = (t.reshape(1, -1, 4, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(1, -1, 32))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cells, self.head = kind(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0][:, -1])


class Autoencoder(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 32), nn.ReLU(),
                         nn.Linear(32, 64))  # fmt: skip


class Mixed(nn.Module):
    """Group norm, pixel shuffle, channel shuffle, pooling of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 16, 3, padding=1, groups=2), nn.GroupNorm(4, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.elu(self.norm(self.conv(x)))
        y = y.reshape(1, 4, 4, *y.shape[2:]).transpose(1, 2).reshape(y.shape)
        y = nn.functional.pixel_shuffle(y, 2)
        return nn.functional.max_pool2d(y, 3, 2, 1) + nn.functional.avg_pool2d(y, 2)


NETWORKS = {
    "separable": (Separable, (1, 1, 49, 10)),
    "residual": (Residual, (1, 3, 32, 32)),
    "inverted": (Inverted, (1, 16, 12, 12)),
    "convnext": (ConvNext, (1, 3, 32, 32)),
    "unet": (UNet, (1, 1, 32, 32)),
    "detector": (Detector, (1, 3, 32, 32)),
    "temporal": (Temporal, (1, 16, 40)),
    "transformer": (Transformer, (1, 12, 10)),
    "attention": (Attention, (1, 12, 32)),
    "lstm": (lambda: Recurrent(nn.LSTM), (1, 10, 8)),
    "gru": (lambda: Recurrent(nn.GRU), (1, 10, 8)),
    "autoencoder": (Autoencoder, (1, 64)),
    "mixed": (Mixed, (1, 4, 16, 16)),
}
STATIC = ("separable", "residual", "inverted", "unet", "detector", "temporal", "autoencoder", "convnext")
DYNAMIC = ("autoencoder", "transformer", "lstm", "attention")


class Samples(CalibrationDataReader):
    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(0)
        self.rows = iter([{name: random.standard_normal(shape, np.float32)} for _ in range(16)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.rows, None)


def main(folder: Path) -> None:
    for name, (build, shape) in NETWORKS.items():
        torch.manual_seed(0)
        network, example = build().eval(), torch.randn(shape)
        legacy, dynamo = folder / f"{name}.legacy.onnx", folder / f"{name}.dynamo.onnx"
        torch.onnx.export(network, (example,), str(legacy), opset_version=17, input_names=["x"], dynamo=False)
        torch.onnx.export(network, (example,), str(dynamo), input_names=["x"], dynamo=True, external_data=False)
        if name in STATIC:
            prepared = folder / "prepared.tmp"
            quant_pre_process(str(legacy), str(prepared))
            for form, kind in (("qdq", QuantType.QInt8), ("qdq_uint8", QuantType.QUInt8)):
                quantize_static(str(prepared), str(folder / f"{name}.{form}.onnx"), Samples("x", shape),
                                quant_format=QuantFormat.QDQ, activation_type=kind, weight_type=QuantType.QInt8,
                                per_channel=True)  # fmt: skip
            prepared.unlink()
        if name in DYNAMIC:
            quantize_dynamic(str(legacy), str(folder / f"{name}.dynamic.onnx"), weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
