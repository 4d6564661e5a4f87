"""A server's public key in OpenSSH's form, by which it is known to be the right one."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

ALGORITHMS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


@dataclass(frozen=True)
class HostKey:
    """A public key."""

    algorithm: str
    """One of `ALGORITHMS`."""
    blob: bytes
    """The key as servers send it, which names the algorithm too."""

    @classmethod
    def parse(cls, text: str) -> HostKey:
        """Read `ssh-ed25519 AAAA...`, with a comment or without. Raises `ValueError`."""
        algorithm, *more = text.split()[:2] or [""]
        if algorithm not in ALGORITHMS or not more:
            raise ValueError(
                f"{text!r} is no host key: the last two words of a line of `ssh-keyscan HOST` are expected, "
                f"such as ssh-ed25519 AAAA... (known are {', '.join(ALGORITHMS)})"
            )
        try:
            blob = base64.b64decode(more[0], validate=True)
        except ValueError:
            blob = b""
        name = algorithm.encode()
        if not blob.startswith(len(name).to_bytes(4, "big") + name):
            raise ValueError(f"{text!r} is no host key: behind {algorithm} does not stand a key of that kind")
        return cls(algorithm, blob)

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it: `SHA256:...`."""
        return fingerprint(self.blob)


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` shows it."""
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"
