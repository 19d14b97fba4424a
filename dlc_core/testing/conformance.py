"""The conformance kit as a test module, for a target named on the command line:

pytest --pyargs dlc_core.testing.conformance --dlc-target=npu --dlc-level 0
"""

from dlc_core.testing import conformance_suite

TestConformance = conformance_suite("reference")
