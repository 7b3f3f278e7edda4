"""Networks of Keras by TensorFlow's converter, float and quantised: `keras_networks.py FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L


def separable() -> keras.Model:
    x = inputs = keras.Input((49, 10, 1), batch_size=1)
    x = L.Conv2D(24, (10, 4), 2, "same", activation="relu")(x)
    for _ in range(2):
        x = L.ReLU()(L.BatchNormalization()(L.DepthwiseConv2D(3, padding="same")(x)))
        x = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(24, 1)(x)))
    return keras.Model(inputs, L.Dense(12, activation="softmax")(L.GlobalAveragePooling2D()(x)))


def inverted() -> keras.Model:
    x = inputs = keras.Input((24, 24, 3), batch_size=1)
    x = L.Conv2D(16, 3, 2, "same", activation="relu")(x)
    y = L.DepthwiseConv2D(5, padding="same", activation="relu6")(L.Conv2D(48, 1)(x))
    x = L.Add()([x, L.Conv2D(16, 1)(y)])
    return keras.Model(inputs, L.Dense(4)(L.Flatten()(L.MaxPooling2D(2)(x))))


def unet() -> keras.Model:
    inputs = keras.Input((32, 32, 1), batch_size=1)
    a = L.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    b = L.Conv2D(16, 3, 2, "same", activation="relu")(a)
    x = L.Concatenate()([a, L.Conv2DTranspose(8, 2, 2)(b)])
    return keras.Model(inputs, L.Conv2D(1, 1, activation="sigmoid")(L.UpSampling2D(2, interpolation="bilinear")(x)))


def temporal() -> keras.Model:
    x = inputs = keras.Input((40, 8), batch_size=1)
    for dilation in (1, 2):
        x = L.Conv1D(16, 3, dilation_rate=dilation, padding="causal", activation="tanh")(x)
    return keras.Model(inputs, L.Dense(3)(L.AveragePooling1D(4)(x)))


def dense() -> keras.Model:
    x = inputs = keras.Input((64,), batch_size=1)
    x = L.LeakyReLU(negative_slope=0.2)(L.Dense(32)(x))
    return keras.Model(inputs, L.Dense(64, activation="tanh")(L.Dense(8, activation="relu")(x)))


def recurrent() -> keras.Model:
    x = inputs = keras.Input((10, 8), batch_size=1)
    return keras.Model(inputs, L.Dense(3)(L.LSTM(12)(x)))


NETWORKS = {f.__name__: f for f in (separable, inverted, unet, temporal, dense, recurrent)}
FORMS = ("float", "int8", "int16", "dynamic", "float16")


def converted(model: keras.Model, form: str) -> bytes:
    shape = model.inputs[0].shape
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    random = np.random.default_rng(0)

    def samples() -> Iterator[list[np.ndarray]]:
        for _ in range(16):
            yield [random.standard_normal(shape, np.float32)]

    if form != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if form in ("int8", "int16"):
        int16 = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [int16 if form == "int16" else tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int16 if form == "int16" else tf.int8
    return bytes(converter.convert())


def main(folder: Path) -> None:
    for name, build in NETWORKS.items():
        keras.utils.set_random_seed(0)
        model = build()
        for form in FORMS:
            if name == "recurrent" and form != "float":
                continue  # the converter cannot quantise its loop
            (folder / f"{name}.{form}.tflite").write_bytes(converted(model, form))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
