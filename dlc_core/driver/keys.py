"""Keys for signatures of artefacts: Ed25519 (RFC 8032), through the package `cryptography`.

A public key is text: "ed25519:", then its 32 bytes in base64 (URL-safe, without padding). A file of keys has
one in each line, followed by a comment; "#" begins a comment line. These keys are trusted:

- those of `config.trusted_keys` (`DLC_TRUSTED_KEYS`): files of keys, or keys themselves;
- those of the file `trusted.keys` in `config.keys_dir`, to which `dlc keys trust` adds;
- those of plugins (hook `dlc_trusted_keys`).

A file of keys counts only if this user or the superuser has written it, and nobody else can write or replace
it. Private keys are files in PEM (PKCS #8), which only this user can read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.config import config
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.plugin.registry import registry
from dlc_core.support.lazy import lazy
from dlc_core.support.private import (
    NotPrivateError,
    new_file,
    open_settings,
    private_folder,
    read_private,
    write_private,
)
from dlc_core.support.record import record

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
else:
    exceptions = lazy("cryptography.exceptions")
    serialization = lazy("cryptography.hazmat.primitives.serialization")
    ed25519 = lazy("cryptography.hazmat.primitives.asymmetric.ed25519")

PREFIX = "ed25519:"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
TRUSTED, SIGNING = "trusted.keys", "signing.pem"
_MAX_FILE = 1 << 20


@record(frozen=True)
class PublicKey:
    """A trusted key: its bytes, and where it is from."""

    data: bytes
    origin: str

    def __str__(self) -> str:
        return key_text(self.data)


def key_text(data: bytes) -> str:
    """A public key as text."""
    return PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")


def key_bytes(text: str, origin: str) -> bytes:
    """A public key of a text. Raises UsageError, which names the origin, if it is none."""
    body = text.removeprefix(PREFIX)
    try:
        if not text.startswith(PREFIX):
            raise ValueError("it does not begin with 'ed25519:'")
        found = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        if len(found) != KEY_BYTES:
            raise ValueError(f"it has {len(found)} bytes, not {KEY_BYTES}")
    except (ValueError, binascii.Error) as error:
        raise UsageError(
            f"{text[:80]!r} of {origin} is not a public key",
            why=str(error),
            hint="`dlc keys new` and `dlc keys list` print keys",
        ) from None
    return found


def trusted_keys() -> list[PublicKey]:
    """The trusted keys. Raises UsageError for a malformed key, and for a file that others can write."""
    found = []
    for entry in config.trusted_keys:
        if entry.startswith(PREFIX):
            found.append(PublicKey(key_bytes(entry, "DLC_TRUSTED_KEYS"), "DLC_TRUSTED_KEYS"))
        else:
            found += _keys_of_file(Path(entry).expanduser())
    own = config.keys_dir / TRUSTED
    if own.exists():
        found += _keys_of_file(own)
    for declared in registry().trusted_keys.values():
        origin = f"the plugin's key {declared.name!r}"
        found.append(PublicKey(key_bytes(declared.key, origin), origin))
    return found


def _keys_of_file(path: Path) -> Iterator[PublicKey]:
    try:
        with open(open_settings(path), "rb") as file:  # noqa: PTH123 (a descriptor)
            text = file.read(_MAX_FILE).decode("utf-8", "replace")
    except NotPrivateError as error:
        hint = f"give it to this user or to the superuser alone: chmod go-w {error.path}"
        raise UsageError(f"the keys of {path} are not used", why=str(error), hint=hint) from None
    except OSError as error:
        raise UsageError(
            f"the file of trusted keys {path} cannot be read", why=(error.strerror or str(error)).lower()
        ) from None
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            yield PublicKey(key_bytes(words[0], str(path)), str(path))


def trust_key(text: str, comment: str = "") -> Path:
    """Add a key to this user's trusted keys, and return their file."""
    key = key_bytes(text, "the command")
    path = config.keys_dir.absolute() / TRUSTED
    if path.exists():
        if any(known.data == key for known in _keys_of_file(path)):
            return path
        before = read_private(path)
    else:
        before = b""
    write_private(path, [before, f"{key_text(key)} {' '.join(comment.split())}".rstrip().encode() + b"\n"])
    return path


def new_key(path: Path | None = None) -> tuple[Path, bytes]:
    """Make a key pair. Returns the file of the private key and the public key. Raises UsageError if the file
    exists, and UnsupportedError without `cryptography`.
    """
    require_cryptography()
    place = _place(path)
    key = ed25519.Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        if path is None:
            with private_folder(place.parent, create=True) as folder:
                descriptor = new_file(place, folder)
        else:
            descriptor = new_file(place)
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
            file.write(text)
    except FileExistsError:
        hint = "give another path; a private key that is overwritten is lost"
        raise UsageError(f"{place} exists", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{place} cannot be written", why=str(error)) from None
    return place, public_bytes(key)


def read_key(path: Path | None = None) -> Any:
    """The private key of a file: an object of `cryptography` with the method `sign`. Raises UsageError if
    there is none.
    """
    require_cryptography()
    place = _place(path)
    try:
        with place.open("rb") as file:
            key = serialization.load_pem_private_key(file.read(_MAX_FILE), None)
    except FileNotFoundError:
        raise UsageError(f"there is no key {place}", hint="`dlc keys new` makes one") from None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"the private key {place} cannot be read", why=str(error)) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UsageError(f"{place} is not an Ed25519 key", hint="`dlc keys new` makes one")
    return key


def _place(path: Path | None) -> Path:
    return (config.keys_dir / SIGNING if path is None else path).absolute()


def public_bytes(key: Any) -> bytes:
    """The public key of a private one."""
    found: bytes = key.public_key().public_bytes_raw()
    return found


def is_signature(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature of a message is by the holder of a key."""
    require_cryptography()
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (exceptions.InvalidSignature, ValueError):
        return False
    return True


def require_cryptography() -> None:
    """Raise UnsupportedError if the package `cryptography` is missing."""
    if find_spec("cryptography") is None:
        raise UnsupportedError(
            "signatures need the package cryptography", hint="pip install 'dlc-core[signing]'"
        )


__all__ = [
    "TRUSTED",
    "PublicKey",
    "is_signature",
    "key_bytes",
    "key_text",
    "new_key",
    "public_bytes",
    "read_key",
    "require_cryptography",
    "trust_key",
    "trusted_keys",
]
