"""The modules of a compile, imported once by the server from which worker processes are forked.

Registries of plugins are not made here: they depend on the environment, which each process gets of its own.
"""

from __future__ import annotations

from dlc_core.driver import api, job, stages  # noqa: F401
from dlc_core.passes import default_pipelines, graph  # noqa: F401
from dlc_core.passes.lower import main  # noqa: F401
from dlc_core.schedule import rules  # noqa: F401
