"""The contract of an artefact: its code says which header belongs to it.

    code section = code of the code generator, MAGIC, SHA-256 of the header

A header says how code is called: arguments with shapes and dtypes, conditions, sizes of weights and of
scratch memory, entry points, launches. A header that lies makes right code access memory that it does not
own. So the section `code` ends with the checksum of the header that was written with it, and a file is read
only if they agree. The header in turn has the checksums of all other sections: weights, facts, the host
program, and the code of regions and parts. So one who trusts the code need not trust the rest. Checksums in
the header alone would not do, because who changes a header can change them too.

The checksum of the code section is part of the header and covers the contract. It counts as zeros.
"""

from __future__ import annotations

import hashlib

CODE = "code"
"""The section that ends with the contract."""
_MAGIC = b"\x89DLC contract 1\n"
BYTES = len(_MAGIC) + hashlib.sha256().digest_size
NO_DIGEST = "0" * (2 * hashlib.sha256().digest_size)
"""The checksum of a section while it is not known."""


def contract_of(header: bytes, digest: str) -> bytes:
    """The contract for the text of a header, in which the code section has the checksum `digest`."""
    blank = header.replace(f'"sha256":"{digest}"'.encode(), f'"sha256":"{NO_DIGEST}"'.encode())
    return _MAGIC + hashlib.sha256(blank).digest()


def ends_with_contract(code: memoryview, header: bytes, digest: str) -> bool:
    """Whether a code section ends with the contract of the header."""
    return code.nbytes >= BYTES and bytes(code[-BYTES:]) == contract_of(header, digest)


__all__ = ["BYTES", "CODE", "NO_DIGEST", "contract_of", "ends_with_contract"]
