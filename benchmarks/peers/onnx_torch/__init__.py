"""ONNX graphs as modules of torch, as somebody would write them by hand: `module_of`.

`ops` says in functions of torch what ONNX's operators mean, `trace` runs these once over a graph with
`torch.fx` watching, which leaves a module without anything of ONNX in it, and `rewrite` puts torch's own
functions where exporters wrote several operators.  Nothing here is imported before torch is wanted.
"""
