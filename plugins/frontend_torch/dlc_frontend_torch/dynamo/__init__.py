"""`torch.compile(model, backend="dlc")`: graphs of Dynamo and AOT autograd, compiled by dlc."""
