"""`python -m dlc_core` is `dlc`."""

from __future__ import annotations

import sys

from dlc_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
