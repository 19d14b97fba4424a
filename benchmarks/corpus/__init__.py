"""The corpus: models as exporters write them, built from recipes, checked, and measured against peers.

    python -m benchmarks.corpus list                    # needs nothing; with FOLDER also sizes of built files
    python -m benchmarks.corpus build FOLDER            # needs `pip install -e '.[corpus]'`
    python -m benchmarks.corpus measure FOLDER --json new.json --against old.json
    python -m benchmarks.corpus check FOLDER --markdown
    python -m benchmarks.corpus phases FOLDER --only resnet/
    python -m benchmarks.corpus build FOLDER --small    # reduced networks, which check exporters

`build` makes networks of random weights of a fixed seed by the exporters of PyTorch, of networks of this
repository, of torchvision, timm and transformers, and of scikit-learn, LightGBM and XGBoost, or takes models
that installed packages ship. Each is built in a separate process, and stored with inputs and with the outputs
of PyTorch or of onnxruntime. `measure` measures all of them and the peers for each number of threads. `check`
compiles each with dlc and compares: an outcome is "right", "wrong", or the first line of the error; "still"
means that outputs are right but hardly depend on the inputs, which proves little. `phases` compiles and runs
each for one and two threads, from the cache in a new process, and in guard mode.
"""
