"""Pipelines of scikit-learn with texts and maps, and networks that ONNX Runtime quantized."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exported.recipes import SEED, export, recipe

Change = Callable[[str, str], None]
"""Makes another model file of one."""


def pipeline_recipes() -> None:
    """scikit-learn: texts, mixed columns, maps as results, densities, outliers."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn import (
        calibration,
        cluster,
        compose,
        decomposition,
        ensemble,
        feature_extraction,
        gaussian_process,
        linear_model,
        mixture,
        multiclass,
        naive_bayes,
        neural_network,
        pipeline,
        preprocessing,
    )

    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((150, 5)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 1)
    numbers = (x @ rng.standard_normal(5)).astype(np.float32)
    kinds = np.array(["red", "green", "blue"])[rng.integers(0, 3, (150, 1))]
    words = np.array([" ".join(rng.choice(["a", "bb", "ccc", "dd", "e"], 6)) for _ in range(150)])
    floats = [("x0", FloatTensorType([None, 5]))]
    mixed = [("x0", FloatTensorType([None, 5])), ("x1", StringTensorType([None, 1]))]
    texts = [("x0", StringTensorType([None, 1]))]

    def add(name: str, make: Callable[[], Any], types: Any, **options: Any) -> None:
        def write(path: Path) -> None:
            made = to_onnx(make(), initial_types=types, target_opset={"": 18, "ai.onnx.ml": 3}, **options)
            path.write_bytes(made.SerializeToString())

        recipe(f"sklearn/{name}")(write)

    def columns() -> Any:
        import pandas

        frame = pandas.DataFrame({**{f"c{i}": x[:, i] for i in range(5)}, "kind": kinds[:, 0]})
        chosen = compose.ColumnTransformer(
            [
                ("numbers", preprocessing.StandardScaler(), [f"c{i}" for i in range(5)]),
                ("kind", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["kind"]),
            ]
        )
        return pipeline.make_pipeline(chosen, linear_model.LogisticRegression()).fit(frame, labels)

    frame_types = [(f"c{i}", FloatTensorType([None, 1])) for i in range(5)]
    add("columns", columns, [*frame_types, ("kind", StringTensorType([None, 1]))], options={"zipmap": False})
    add("zipmap", lambda: linear_model.LogisticRegression().fit(x, labels), floats)
    names = np.array(["no", "maybe", "yes"])
    add(
        "zipmap_texts",
        lambda: ensemble.RandomForestClassifier(5, random_state=0).fit(x, names[labels]),
        floats,
    )
    add(
        "tfidf",
        lambda: pipeline.make_pipeline(
            feature_extraction.text.TfidfVectorizer(token_pattern="[a-z]+", lowercase=False),
            linear_model.Ridge(),
        ).fit(words, numbers),
        texts,
    )
    add("onehot", lambda: preprocessing.OneHotEncoder(handle_unknown="ignore").fit(kinds), [mixed[1]])
    add("kmeans", lambda: cluster.KMeans(4, random_state=0, n_init=1).fit(x), floats)
    add("pca", lambda: decomposition.PCA(3).fit(x), floats)
    add("isolation", lambda: ensemble.IsolationForest(n_estimators=10, random_state=0).fit(x), floats)
    add("mixture", lambda: mixture.GaussianMixture(3, random_state=0).fit(x), floats)
    add("process", lambda: gaussian_process.GaussianProcessRegressor().fit(x[:40], numbers[:40]), floats)
    add("stacking", lambda: ensemble.StackingRegressor([
        ("tree", ensemble.ExtraTreesRegressor(5, random_state=0)), ("line", linear_model.Ridge()),
    ]).fit(x, numbers), floats)  # fmt: skip
    add("voting", lambda: ensemble.VotingClassifier([
        ("line", linear_model.LogisticRegression()), ("bayes", naive_bayes.GaussianNB()),
    ], voting="soft", flatten_transform=False).fit(x, labels), floats, options={"zipmap": False})  # fmt: skip
    add(
        "calibrated",
        lambda: calibration.CalibratedClassifierCV(linear_model.LogisticRegression(), cv=3).fit(x, labels),
        floats,
        options={"zipmap": False},
    )
    add(
        "one_vs_rest",
        lambda: multiclass.OneVsRestClassifier(
            neural_network.MLPClassifier((8,), random_state=0, max_iter=20)
        ).fit(x, labels),
        floats,
        options={"zipmap": False},
    )
    add("quantiles", lambda: preprocessing.KBinsDiscretizer(4, encode="ordinal").fit(x), floats)


def quantized_recipes() -> None:
    """ONNX Runtime's quantization: static in both forms, by channels, dynamic, weights of 4 bits."""
    import torch
    from onnxruntime import quantization as q
    from torch import nn

    def network() -> Any:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU6(),
            nn.Conv2d(8, 16, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 8 * 8, 10),
        )  # fmt: skip

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(16, 24, batch_first=True, bidirectional=True)
            self.out = nn.Linear(48, 5)

        def forward(self, x: Any) -> Any:
            return self.out(self.cell(x)[0])

    class Readings(q.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            rng = np.random.default_rng(SEED)
            self.left: Iterator[Any] = iter(
                {"x0": rng.standard_normal((1, 3, 32, 32)).astype("f4")} for _ in range(8)
            )

        def get_next(self) -> Any:
            return next(self.left, None)

    def changed(
        make: Callable[[], Any], args: Any, how: Callable[[str, str], None]
    ) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            with tempfile.TemporaryDirectory() as folder:
                whole = Path(folder) / "m.onnx"
                export(make(), args, whole, False)
                how(str(whole), str(path))

        return write

    def static(form: Any, **options: Any) -> Change:
        return lambda source, to: q.quantize_static(source, to, Readings(), quant_format=form, **options)

    def four_bits(source: str, to: str) -> None:
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        made = MatMulNBitsQuantizer(onnx.load(source), 4, 32, True)
        made.process()
        onnx.save(made.model.model, to)

    image, rows = (torch.randn(1, 3, 32, 32),), (torch.randn(1, 6, 16),)
    recipe("quantized/qdq")(changed(network, image, static(q.QuantFormat.QDQ)))
    recipe("quantized/qdq_channels")(changed(network, image, static(q.QuantFormat.QDQ, per_channel=True)))
    recipe("quantized/qoperator")(changed(network, image, static(q.QuantFormat.QOperator)))
    signed = {"activation_type": q.QuantType.QInt8, "weight_type": q.QuantType.QInt8}
    recipe("quantized/qdq_signed")(changed(network, image, static(q.QuantFormat.QDQ, **signed)))
    recipe("quantized/lstm")(changed(Tagger, rows, lambda a, b: q.quantize_dynamic(a, b)))

    def layers() -> Any:
        return nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    recipe("quantized/four_bits")(changed(layers, (torch.randn(1, 6, 64),), four_bits))


__all__ = ["pipeline_recipes", "quantized_recipes"]
