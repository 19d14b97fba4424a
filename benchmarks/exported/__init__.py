"""Models as exporters write them, against onnxruntime: do they import, compile and give the right answer?

    python -m benchmarks.exported build FOLDER          # needs torch, onnxruntime; more of what is installed
    python -m benchmarks.exported check FOLDER          # needs dlc
    python -m benchmarks.exported check FOLDER --markdown
    python -m benchmarks.exported build FOLDER --only sized/    # needs `pip install -e '.[exported]'`
    python -m benchmarks.exported phases FOLDER --only sized/

`build` makes networks of random weights and small sizes by the exporters of PyTorch (both of them), of models
of its own, of torchvision and of transformers, and of scikit-learn, LightGBM and XGBoost, takes the models
that installed packages ship, each in a process of its own, seeded; and stores for each random inputs and what
onnxruntime makes of them.  `check` compiles each with dlc and compares.  An outcome is "right", "wrong", or
the first line of the one clear error; "still" is one whose outputs are right and hardly change with the
inputs, which says little.

Models "sized/…" have the sizes that they are published in, and what PyTorch makes of them; `phases` compiles
and runs each for one and two threads, from the cache in a new process, and in guard mode, as the slow tests
in tests/models/test_sizes.py do.
"""
