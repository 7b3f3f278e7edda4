"""Networks of JAX and Flax as ONNX: `jax_networks.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from flax import nnx
from jax2onnx import to_onnx


class Perceptron(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.a, self.b = nnx.Linear(20, 32, rngs=rngs), nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return nnx.softmax(self.b(nnx.gelu(self.a(x))))


class Picture(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.a = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.b = nnx.Conv(8, 16, (3, 3), strides=(2, 2), rngs=rngs)
        self.c = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.b(nnx.relu(self.a(x))))
        return self.c(jnp.mean(x, (1, 2)))


def wave(x: jax.Array) -> jax.Array:
    weights = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    return jnp.tanh(x @ weights) * jax.nn.sigmoid(x) + jnp.cumsum(x, axis=-1)


def main(folder: Path) -> None:
    networks = {"perceptron": (Perceptron(), (1, 20)), "picture": (Picture(), (1, 16, 16, 1)), "wave": (wave, (1, 16))}
    for name, (network, shape) in networks.items():
        onnx.save(to_onnx(network, [shape]), folder / f"{name}.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
