"""The cost of the cache's key: hashes of the standard library, and the digest of a file of weights.

    python -m benchmarks.hashing [--megabytes 1024]

Each figure is the best of three, for a file in the page cache. `remembered` is the digest of a file whose
stamp is known, as at every start but the first.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dlc_core.config import config
from dlc_core.driver import digests

HASHES = ("sha256", "sha512", "sha3_256", "blake2b", "blake2s")
_CHUNK = 1 << 24


def best(work: Callable[[], object]) -> float:
    """The seconds of the fastest of three runs."""
    found = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    megabytes = parser.parse_args().megabytes
    data = os.urandom(_CHUNK)
    for name in HASHES:
        seconds = best(lambda name=name: hashlib.new(name, data).digest())
        print(f"{name:>12}  {len(data) / seconds / 1e9:5.2f} GB/s")
    with (
        tempfile.TemporaryDirectory() as folder,
        config.override(cache=True, cache_dir=Path(folder, "cache")),
    ):
        path = Path(folder, "weights")
        with path.open("wb") as file:
            for _ in range(max(1, megabytes * (1 << 20) // len(data))):
                file.write(data)
        size = path.stat().st_size
        with config.override(cache=False):
            seconds = best(lambda: digests.file_digest([path]))
        print(f"{'a file':>12}  {size / seconds / 1e9:5.2f} GB/s  {seconds:.3f} s for {size / 1e9:.2f} GB")
        time.sleep(2.5)  # until the stamp is valid
        digests.file_digest([path])
        seconds = best(lambda: digests.file_digest([path]))
        print(f"{'remembered':>12}  {seconds * 1e3:5.2f} ms")


if __name__ == "__main__":
    main()
