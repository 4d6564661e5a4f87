"""The public key of an SFTP server, in OpenSSH's format. It proves that a server is the partner's."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

# Without ssh-dss: OpenSSH disables it by default since version 7.0.
ALGORITHMS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


@dataclass(frozen=True)
class HostKey:
    """A server's public key."""

    algorithm: str
    """One of `ALGORITHMS`."""
    blob: bytes
    """The key as servers send it: the name of the algorithm, then the key itself."""

    @classmethod
    def parse(cls, line: str) -> HostKey:
        """Parse `ssh-ed25519 AAAA...`, with or without a comment at the end. Raises `ValueError`."""
        algorithm, *encoded = line.split()[:2] or [""]
        if algorithm not in ALGORITHMS or not encoded:
            raise ValueError(
                f"{line!r} is not a host key: use the last two words of a line of `ssh-keyscan HOST`, "
                f"such as ssh-ed25519 AAAA... (supported: {', '.join(ALGORITHMS)})"
            )
        try:
            blob = base64.b64decode(encoded[0], validate=True)
        except ValueError:
            blob = b""
        # RFC 4253, section 6.6: a key begins with the length of its algorithm's name in four bytes, then the name.
        name = algorithm.encode()
        if not blob.startswith(len(name).to_bytes(4, "big") + name):
            raise ValueError(f"{line!r} is not a host key: the part after {algorithm} is not a key of that algorithm")
        return cls(algorithm, blob)

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -l` shows it: `SHA256:...`."""
        return fingerprint(self.blob)


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` shows it: `SHA256:...`."""
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"
