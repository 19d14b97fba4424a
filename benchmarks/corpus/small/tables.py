"""Models of scikit-learn, LightGBM and XGBoost: trees, linear models, pipelines with texts and maps."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.recipe import SEED, small


class _Package:
    """The modules of a package, each imported when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return import_module(f"{self._name}.{name}")


sk = _Package("sklearn")


class Data:
    """The data to which models are fitted: rows of numbers, kinds and texts, with labels and targets."""

    def __init__(self, rows: int = 150, columns: int = 5) -> None:
        rng = np.random.default_rng(SEED)
        self.x = rng.standard_normal((rows, columns)).astype(np.float32)
        self.labels = (self.x[:, 0] * self.x[:, 1] > 0).astype(np.int64) + (self.x[:, 2] > 1)
        self.numbers = (self.x @ rng.standard_normal(columns) + self.x[:, 0] ** 2).astype(np.float32)
        self.kinds = np.array(["red", "green", "blue"])[rng.integers(0, 3, (rows, 1))]
        self.texts = np.array([" ".join(rng.choice(["a", "bb", "ccc", "dd", "e"], 6)) for _ in range(rows)])
        self.names = np.array(["no", "maybe", "yes"])[self.labels]


Fit = Callable[[Data], Any]
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: sk.linear_model.LogisticRegression(),
    "forest": lambda: sk.ensemble.RandomForestClassifier(10, random_state=0),
    "boosting": lambda: sk.ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0),
    "svc": lambda: sk.svm.SVC(probability=True, random_state=0),
    "mlp": lambda: sk.neural_network.MLPClassifier((16, 8), random_state=0, max_iter=50),
    "bayes": lambda: sk.naive_bayes.GaussianNB(),
    "neighbors": lambda: sk.neighbors.KNeighborsClassifier(3),
    "voting": lambda: sk.ensemble.VotingClassifier(
        [("line", sk.linear_model.LogisticRegression()), ("bayes", sk.naive_bayes.GaussianNB())],
        voting="soft", flatten_transform=False,
    ),
    "calibrated": lambda: sk.calibration.CalibratedClassifierCV(sk.linear_model.LogisticRegression(), cv=3),
    "one_vs_rest": lambda: sk.multiclass.OneVsRestClassifier(
        sk.neural_network.MLPClassifier((8,), random_state=0, max_iter=20)
    ),
}  # fmt: skip
REGRESSORS: dict[str, Callable[[], Any]] = {
    "ridge": lambda: sk.linear_model.Ridge(),
    "extra_trees": lambda: sk.ensemble.ExtraTreesRegressor(10, random_state=0),
    "histogram": lambda: sk.ensemble.HistGradientBoostingRegressor(max_iter=10),
    "svr": lambda: sk.svm.SVR(),
    "pipeline": lambda: sk.pipeline.make_pipeline(
        sk.preprocessing.StandardScaler(), sk.preprocessing.PolynomialFeatures(2), sk.linear_model.Ridge()
    ),
    "stacking": lambda: sk.ensemble.StackingRegressor(
        [("tree", sk.ensemble.ExtraTreesRegressor(5, random_state=0)), ("line", sk.linear_model.Ridge())]
    ),
}
OTHERS: dict[str, Fit] = {
    "zipmap": lambda d: sk.linear_model.LogisticRegression().fit(d.x, d.labels),
    "zipmap_texts": lambda d: sk.ensemble.RandomForestClassifier(5, random_state=0).fit(d.x, d.names),
    "kmeans": lambda d: sk.cluster.KMeans(4, random_state=0, n_init=1).fit(d.x),
    "pca": lambda d: sk.decomposition.PCA(3).fit(d.x),
    "isolation": lambda d: sk.ensemble.IsolationForest(n_estimators=10, random_state=0).fit(d.x),
    "mixture": lambda d: sk.mixture.GaussianMixture(3, random_state=0).fit(d.x),
    "process": lambda d: sk.gaussian_process.GaussianProcessRegressor().fit(d.x[:40], d.numbers[:40]),
    "quantiles": lambda d: sk.preprocessing.KBinsDiscretizer(4, encode="ordinal").fit(d.x),
}
TEXTS: dict[str, Fit] = {
    "tfidf": lambda d: sk.pipeline.make_pipeline(
        sk.feature_extraction.text.TfidfVectorizer(token_pattern="[a-z]+", lowercase=False),
        sk.linear_model.Ridge(),
    ).fit(d.texts, d.numbers),
    "onehot": lambda d: sk.preprocessing.OneHotEncoder(handle_unknown="ignore").fit(d.kinds),
}


def _convert(path: Path, model: Any, types: Any, *, maps: bool = True) -> None:
    from skl2onnx import to_onnx

    options = None if maps else {"zipmap": False}
    made = to_onnx(model, initial_types=types, target_opset={"": 18, "ai.onnx.ml": 3}, options=options)
    path.write_bytes(made.SerializeToString())


def _floats(columns: int = 5) -> Any:
    from skl2onnx.common.data_types import FloatTensorType

    return [("x0", FloatTensorType([None, columns]))]


def _strings() -> Any:
    from skl2onnx.common.data_types import StringTensorType

    return [("x0", StringTensorType([None, 1]))]


def _write(path: Path, fit: Fit, *, texts: bool = False, maps: bool = True) -> None:
    _convert(path, fit(Data()), _strings() if texts else _floats(), maps=maps)


def _register() -> None:
    for name, make in CLASSIFIERS.items():
        small(f"sklearn/{name}", "scikit-learn")(
            lambda path, make=make: _write(path, lambda d: make().fit(d.x, d.labels), maps=False)  # type: ignore[misc]
        )
    for name, make in REGRESSORS.items():
        small(f"sklearn/{name}", "scikit-learn")(
            lambda path, make=make: _write(path, lambda d: make().fit(d.x, d.numbers))  # type: ignore[misc]
        )
    for name, fit in OTHERS.items():
        small(f"sklearn/{name}", "scikit-learn")(lambda path, fit=fit: _write(path, fit))  # type: ignore[misc]
    for name, fit in TEXTS.items():
        small(f"sklearn/{name}", "scikit-learn")(lambda path, fit=fit: _write(path, fit, texts=True))  # type: ignore[misc]


_register()


def _columns(path: Path) -> None:
    """Columns of two types, each an input."""
    import pandas
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    data = Data()
    names = [f"c{index}" for index in range(5)]
    frame = pandas.DataFrame({**dict(zip(names, data.x.T)), "kind": data.kinds[:, 0]})
    chosen = sk.compose.ColumnTransformer(
        [
            ("numbers", sk.preprocessing.StandardScaler(), names),
            ("kind", sk.preprocessing.OneHotEncoder(handle_unknown="ignore"), ["kind"]),
        ]
    )
    model = sk.pipeline.make_pipeline(chosen, sk.linear_model.LogisticRegression())
    types = [*((name, FloatTensorType([None, 1])) for name in names), ("kind", StringTensorType([None, 1]))]
    _convert(path, model.fit(frame, data.labels), types, maps=False)


small("sklearn/columns", "scikit-learn")(_columns)


def _boosted(path: Path, kind: str, classes: bool) -> None:
    from onnxmltools import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    data = Data(200, 6)
    types = [("x0", FloatTensorType([None, 6]))]
    target = data.labels if classes else data.numbers
    package = import_module(kind)
    if kind == "lightgbm":
        model = (package.LGBMClassifier if classes else package.LGBMRegressor)(n_estimators=10, verbose=-1)
        model.fit(data.x, target)
        made = convert_lightgbm(model, initial_types=types, zipmap=False, target_opset=15)
    else:
        model = (package.XGBClassifier if classes else package.XGBRegressor)(n_estimators=10)
        model.fit(data.x, target)
        made = convert_xgboost(model, initial_types=types, target_opset=15)
    path.write_bytes(made.SerializeToString())


for _kind in ("lightgbm", "xgboost"):
    for _classes in (True, False):
        small(f"{_kind}/{'classifier' if _classes else 'regressor'}")(
            lambda path, kind=_kind, classes=_classes: _boosted(path, kind, classes)  # type: ignore[misc]
        )
