"""The interface of onnxruntime: sessions, their options, and bindings of inputs and outputs to memory."""
