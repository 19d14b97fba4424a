"""The PyTorch frontend of dlc: `torch.export` programs, modules, `.pt2` files and `torch.compile`."""
