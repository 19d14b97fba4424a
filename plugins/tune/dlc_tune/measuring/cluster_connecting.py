"""Connections to the scheduler of a cluster, and their certificates."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.diag import UsageError
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    import distributed
else:
    distributed = lazy("distributed")


def security_of(
    address: str, ca: Path | None, cert: Path | None, key: Path | None
) -> distributed.Security | None:
    """The security of connections to an address; None for "tcp://" without certificates.

    Without files, the security of an address "tls://" is that of Dask's configuration. Raises UsageError if
    that has none, for files with "tcp://", and for files that are missing or cannot be used.
    """
    files = {"tls_ca_file": ca, "tls_client_cert": cert, "tls_client_key": key}
    given = {name: str(path) for name, path in files.items() if path is not None}
    missing = [path for path in given.values() if not Path(path).is_file()]
    if missing:
        raise UsageError(f"there is no file {missing[0]}")
    if not address.startswith("tls://"):
        if given:
            hint = "write tls:// in place of tcp://"
            raise UsageError(f"the address {address} uses no certificates", hint=hint)
        return None
    worker = {name.replace("client", "worker"): path for name, path in given.items() if "client" in name}
    found = require_distributed().Security(require_encryption=True, **given, **worker)
    if not (found.tls_ca_file and found.tls_client_cert):
        raise UsageError(
            f"the address {address} needs certificates",
            hint="give tls_ca, tls_cert and tls_key, or set distributed.comm.tls in Dask's configuration",
        )
    try:
        found.get_connection_args("client")
    except OSError as error:
        raise UsageError(
            f"the certificates for {address} cannot be used",
            why=str(error),
            hint="tls_cert and tls_key are PEM files that belong together; tls_ca is that of their authority",
        ) from error
    return found


def connect(address: str, security: distributed.Security | None, seconds: float = 10.0) -> distributed.Client:
    """A client of the scheduler at an address. Raises UsageError if none answers in time."""
    require_distributed()
    try:
        return distributed.Client(address, security=security, timeout=seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        hint = "`dask scheduler` starts one and prints its address"
        if address.startswith("tls://"):
            hint = "it listens at tls://, and all certificates are of one authority"
        raise UsageError(f"no Dask scheduler answers at {address}", why=str(error), hint=hint) from error


def require_distributed() -> Any:
    """The package `distributed`. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "measuring on a cluster needs the package distributed",
            why=str(error),
            hint='pip install "dlc-tune[cluster]"',
        ) from error


__all__ = ["connect", "require_distributed", "security_of"]
