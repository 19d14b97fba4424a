"""Suites of ONNX models, run by dlc and by onnxruntime on the same inputs, and compared.

    python -m benchmarks.suites backend FOLDER/onnx         # the backend tests of the onnx package
    python -m benchmarks.suites files FOLDER/more SOURCE    # .onnx and .prototxt files, also of a git folder
    python -m benchmarks.suites tests FOLDER/tests FILE.py  # the models that tests give to onnxruntime
    python -m benchmarks.suites compare FOLDER --json FILE  # run all models below a folder
    python -m benchmarks.suites show FILE

A model is a `.onnx` file. Its inputs are in `test_data_set_0` beside it, as in onnx's tests, or in a
`.npz` file of its name with arrays `in_<name>`. Other inputs are drawn with a seed.
"""
