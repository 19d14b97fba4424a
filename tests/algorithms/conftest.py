"""Graph passes of algorithms run under the watchers of `tests/passes`."""

from tests.passes.conftest import checked, make_function

__all__ = ["checked", "make_function"]
