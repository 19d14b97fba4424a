"""`dlc sign`, `dlc verify` and `dlc keys`"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from dlc_core.config import config
from dlc_core.diag import UsageError
from dlc_core.driver import keys as known
from dlc_core.driver import signing

Files = Annotated[list[Path], typer.Argument(help="Compiled files.", metavar="DLC...")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key", help="The file of the private key; the default is the one of `dlc keys new`."),
]


class Action(str, Enum):
    """The action on keys."""

    list = "list"
    new = "new"
    trust = "trust"


def sign(
    files: Files,
    key: KeyFile = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Sign files that this user did not write and no trusted key signed."),
    ] = False,
) -> None:
    """Sign `.dlc` files, so that `dlc.open` accepts them wherever the key is trusted.

    The signature (Ed25519) covers the whole contents: code, header, weights. Needs the extra `signing` of
    dlc-core. `dlc keys new` makes a key.

    Examples:

    - `dlc sign model.dlc`
    - `dlc sign model.dlc --key release.pem`
    """
    for file in files:
        print(f"{file}: signed by {signing.sign(file, key, trust=trust)}")


def verify(files: Files) -> None:
    """Check `.dlc` files, and say who vouches for them. No code runs.

    All checksums are compared. A portable model has no code; its graphs are checked. The exit code is 1 if a
    file is damaged, or if `dlc.open` would refuse it.

    Example: `dlc verify model.dlc`
    """
    refused = False
    for file in files:
        found = signing.verify(file)
        words = ["portable: no code, for which nobody has to vouch"] * found.portable
        words += ["written by this user"] * found.own
        words += [f"signed by {key} (trusted)" for key in found.signed_by]
        words += [f"signed by {key} (unknown)" for key in found.unknown]
        print(f"{file}: {', '.join(words) or 'nobody vouches for it'}")
        refused = refused or not found.trusted
    if refused:
        raise typer.Exit(1)


def keys(
    action: Annotated[
        Action, typer.Argument(help="`list` trusted keys, make a `new` key, or `trust` a key.")
    ] = Action.list,
    argument: Annotated[
        str | None,
        typer.Argument(help="For `new`: a path. For `trust`: a key.", metavar="[PATH or KEY]"),
    ] = None,
    comment: Annotated[str, typer.Option("--comment", help="For `trust`: whose key it is.")] = "",
) -> None:
    """Keys for signatures of `.dlc` files.

    `new` writes a private key, which only this user can read, and prints the public one. `list` shows the
    trusted keys: those of `DLC_TRUSTED_KEYS` (files of keys, or keys, separated by commas), those that
    `trust` has added, and those of plugins.

    Examples:

    - `dlc keys new`
    - `dlc keys trust ed25519:... --comment "releases of Ann"`
    - `dlc keys`
    """
    if action is Action.new:
        path, public = known.new_key(Path(argument) if argument else None)
        print(f"private key  {path}\npublic key   {known.key_text(public)}")
    elif action is Action.trust:
        if argument is None:
            raise UsageError("which key is to be trusted?", hint="dlc keys trust ed25519:...")
        print(f"added to {known.trust_key(argument, comment)}")
    else:
        found = known.trusted_keys()
        for key in found:
            print(f"{key}  {key.origin}")
        if not found:
            print(f"no trusted keys; `dlc keys trust KEY` adds one to {config.keys_dir / known.TRUSTED}")


__all__ = ["keys", "sign", "verify"]
