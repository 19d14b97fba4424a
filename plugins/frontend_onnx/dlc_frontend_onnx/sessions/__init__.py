"""Models for users of onnxruntime, with its names: sessions, their options, values on fixed memory."""
