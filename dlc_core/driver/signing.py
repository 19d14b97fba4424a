"""Signed artefacts: `dlc.sign` adds a signature to a file, `dlc.verify` checks a file.

A signature covers the prefix of a file, which has the checksum of the header, which has those of all
sections. It is in the seals at the end of the file (see `runtime.artefact.seals`), so the contents stay as
they are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.diag import ArtifactError, UntrustedError
from dlc_core.driver import keys
from dlc_core.runtime.artefact.container import Opened, read_container
from dlc_core.runtime.artefact.contract import CODE
from dlc_core.runtime.artefact.marks import is_marked
from dlc_core.runtime.artefact.seals import SIGNATURE, Seal, encode_seals
from dlc_core.support.lazy import lazy
from dlc_core.support.private import new_file, remove_from, replace_in, temporary_of
from dlc_core.support.record import record

if TYPE_CHECKING:
    from dlc_core.driver.portable import form
else:
    form = lazy("dlc_core.driver.portable.form")

_DOMAIN = b"dlc signature 1\0"


@record(frozen=True)
class Verified:
    """The result of `verify`. `signed_by` are the trusted keys whose signatures are right, `unknown` the
    other keys, as text. `own` says whether this user's dlc wrote the file, `portable` whether it is a
    portable model, which has no code.
    """

    own: bool
    signed_by: tuple[str, ...]
    unknown: tuple[str, ...]
    portable: bool = False

    @property
    def trusted(self) -> bool:
        """Whether `dlc.open` accepts the file."""
        return self.own or bool(self.signed_by) or self.portable


def sign(
    path: str | os.PathLike[str], key: str | os.PathLike[str] | None = None, *, trust: bool = False
) -> str:
    """Sign an artefact, after a check of all its checksums, and return the public key as text.

    This user's dlc must have written it, or it has a signature of a trusted key; `trust` signs others, too.

    `key` is the file of a private key (Ed25519, PEM); the default is the one that `dlc keys new` made. The
    file is replaced by a signed one; other signatures are kept. Raises UntrustedError for a file for which
    nobody vouches, UsageError if there is no such key, ArtifactError if the file is damaged or cannot be
    written, and UnsupportedError without `cryptography`.
    """
    private = keys.read_key(None if key is None else Path(key))
    public = keys.public_bytes(private)
    file = Path(path)
    opened = _checked(file)
    envelope = opened.envelope
    if not (trust or envelope.portable or is_marked(envelope.prefix, envelope.seals)) and not signer(
        envelope.prefix, envelope.seals, keys.trusted_keys()
    ):
        raise UntrustedError(
            f"{file} is not signed",
            why="this user's dlc did not write it, and no trusted key has signed it",
            hint="sign what you made, or pass trust=True (--trust), as if you had made it",
        )
    seals = [seal for seal in opened.envelope.seals if _key_of(seal) != public]
    proof = public + private.sign(_DOMAIN + opened.envelope.prefix)
    _replace_seals(file, opened, [*seals, Seal(SIGNATURE, proof)])
    return keys.key_text(public)


def verify(path: str | os.PathLike[str]) -> Verified:
    """Check all checksums of an artefact, its contract, and its seals. No code of it runs. The graphs of a
    portable model are checked as `dlc.open` checks them.

    Raises ArtifactError if it is damaged, or if a signature of a trusted key is wrong.
    """
    file = Path(path)
    opened = _checked(file)
    if opened.envelope.portable:
        form.read_portable(file).module()
    known = {key.data for key in keys.trusted_keys()}
    signed, unknown = [], []
    for public, signature in signatures(opened.envelope.seals):
        text = keys.key_text(public)
        if public not in known:
            unknown.append(text)
        elif keys.is_signature(public, signature, _DOMAIN + opened.envelope.prefix):
            signed.append(text)
        else:
            raise ArtifactError(f"the signature of {file} by {text} is wrong", hint="get the file again")
    own = is_marked(opened.envelope.prefix, opened.envelope.seals)
    return Verified(own, tuple(signed), tuple(unknown), opened.envelope.portable)


def signatures(seals: Sequence[Seal]) -> Iterator[tuple[bytes, bytes]]:
    """The public key and the signature of each seal that is a signature."""
    for seal in seals:
        if _key_of(seal):
            yield seal.proof[: keys.KEY_BYTES], seal.proof[keys.KEY_BYTES :]


def signer(prefix: bytes, seals: Sequence[Seal], trusted: Sequence[keys.PublicKey]) -> keys.PublicKey | None:
    """The trusted key that has signed a file with this prefix; None if there is none."""
    known = {key.data: key for key in trusted}
    for public, signature in signatures(seals):
        if public in known and keys.is_signature(public, signature, _DOMAIN + prefix):
            return known[public]
    return None


def _key_of(seal: Seal) -> bytes:
    if seal.kind != SIGNATURE or len(seal.proof) != keys.KEY_BYTES + keys.SIGNATURE_BYTES:
        return b""
    return seal.proof[: keys.KEY_BYTES]


def _checked(path: Path) -> Opened:
    opened = read_container(path)
    opened.verify(*opened.sections)
    if CODE in opened.sections:
        opened.check_contract()
    return opened


def _replace_seals(path: Path, opened: Opened, seals: Sequence[Seal]) -> None:
    """Write the contents that were checked, with other seals, and rename the new file."""
    temporary = temporary_of(path)
    try:
        with open(new_file(temporary, private=False), "wb") as file:  # noqa: PTH123 (a descriptor)
            file.write(opened.contents)
            file.write(encode_seals(seals))
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, temporary)
        replace_in(None, temporary, path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be written", why=why, hint="the old file is unchanged") from None
    finally:
        if temporary.exists():
            remove_from(None, temporary)


__all__ = ["Verified", "sign", "signatures", "signer", "verify"]
