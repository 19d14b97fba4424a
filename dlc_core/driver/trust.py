"""Which artefacts `dlc.open` accepts: native code of a file is run only if somebody vouches for it.

    this user       the file has this user's mark (see `runtime.artefact.marks`), which `exe.save` adds
    a signature     of a trusted key (see `dlc_core.driver.keys`)
    the caller      `trust=True`

The owner of a file is no evidence: downloads belong to the user, too. The decision is made before the header
is parsed.
"""

from __future__ import annotations

from pathlib import Path

from dlc_core.diag import DlcError, UntrustedError
from dlc_core.driver import keys
from dlc_core.driver.signing import signatures, signer
from dlc_core.runtime.artefact.container import Envelope
from dlc_core.runtime.artefact.marks import is_marked, key_problem
from dlc_core.support.ownership import objection

OWN, CALLER = "this user's mark", "trust=True"


class Gate:
    """Decides whether to read one file, as the argument `accept` of `read`."""

    def __init__(self, trust: bool, mapped: bool) -> None:
        self._trust = trust
        self._mapped = mapped
        self.by = ""
        """Who vouches for the file."""

    @property
    def is_own(self) -> bool:
        """Whether this user's dlc wrote the file."""
        return self.by == OWN

    def __call__(self, envelope: Envelope) -> bool:
        """Return whether all sections must be compared with their checksums, since a seal vouches for these:
        it stays right when somebody changes the weights.

        Raises UntrustedError if nobody vouches for the file.
        """
        others = objection(envelope.status)
        if self._mapped and others:
            raise UntrustedError(
                f"{envelope.path} cannot be mapped",
                why=f"{others}, and what has been checked could change",
                hint="open it without mapped=True: it is then copied to memory",
            )
        if is_marked(envelope.prefix, envelope.seals):
            self.by = OWN
            return True
        key = self._signer(envelope)
        if key is not None:
            self.by = f"a signature of {key} ({key.origin})"
            return True
        if not self._trust:
            raise _untrusted(envelope)
        self.by = CALLER
        return False

    def _signer(self, envelope: Envelope) -> keys.PublicKey | None:
        """The trusted key of a signature. Trusted keys are read only for signed files."""
        if next(signatures(envelope.seals), None) is None:
            return None
        try:
            return signer(envelope.prefix, envelope.seals, keys.trusted_keys())
        except DlcError:
            if self._trust:
                return None
            raise


def _untrusted(envelope: Envelope) -> UntrustedError:
    path: Path = envelope.path
    signed = [keys.key_text(public) for public, _ in signatures(envelope.seals)]
    if signed:
        why = f"it is signed by {', '.join(signed)}, which is not a trusted key, or the signature is wrong"
        hint = "if the key is that of its author: dlc keys trust KEY, or set DLC_TRUSTED_KEYS"
    else:
        problem = key_problem()
        why = f"this user's dlc did not write it, and it has no signature{f' ({problem})' * bool(problem)}"
        hint = "have its author sign it (dlc sign)"
    return UntrustedError(
        f"{path} holds native code, and nobody vouches for it",
        why=why,
        hint=f"{hint}; or pass trust=True (--trust), as you would run a program from its sender",
    )


__all__ = ["CALLER", "OWN", "Gate"]
