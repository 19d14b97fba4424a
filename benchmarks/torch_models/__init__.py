"""Networks of transformers, timm, torchvision and torch.nn with random weights, compared with eager.

    python -m benchmarks.torch_models                      # all models, static shapes
    python -m benchmarks.torch_models bert vit --dynamic   # these families, symbolic shapes, several sizes
    python -m benchmarks.torch_models --compile            # through torch.compile(backend="dlc")
    python -m benchmarks.torch_models --training           # 20 steps through torch.compile(backend="dlc")
    python -m benchmarks.torch_models --family pictures --json models.json    # one kind, added to the file
    python -m benchmarks.torch_models --page docs/torch-models.md --json models.json    # the page of all

It needs torch and the packages of the models, and no network. Each model has a process of its own. An outcome
is "right", "wrong", "refused" with all reasons, "not exported" if torch.export itself fails, or "crashed".
"vacuous" are right outputs which show nothing: those of eager for other inputs are as near, or
`torch.compile` made no graph, so that torch ran the whole network. In training, "still" means that the loss
did not change, so that equal losses show nothing.
"""
