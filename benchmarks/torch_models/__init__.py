"""Networks of transformers from configs with random weights, imported and compared with eager.

    python -m benchmarks.torch_models                      # all models, static shapes
    python -m benchmarks.torch_models bert vit --dynamic   # these families, symbolic shapes, several sizes
    python -m benchmarks.torch_models --training           # 20 steps through torch.compile(backend="dlc")

It needs torch and transformers, and no network. Each model has a process of its own. An outcome is "right",
"wrong", "refused" with all reasons, "not exported" if torch.export itself fails, or "crashed".
"""
