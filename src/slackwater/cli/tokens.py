"""The command line's own bearer tokens, one for each API, kept in `.slackwater/token`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slackwater.errors import InputError

OPERATOR = "operator"
"""The partner that the command line pushes as."""


@dataclass(frozen=True)
class TokenFile:
    """A file that only its owner can read. A token is kept by the API that it is for, and sent to no other."""

    path: Path

    def token(self, api: str) -> str | None:
        """Return the token kept for that API."""
        return self._all().get(api)

    def keep(self, api: str, token: str) -> None:
        """Keep a token, in place of an earlier one for that API."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = json.dumps(self._all() | {api: token}, indent=1)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(written)
        new.replace(self.path)

    def kept_or_minted(self, api: str, mint: Callable[[], str]) -> str:
        """Return the kept token, minting and keeping one on first use."""
        token = self.token(api)
        if token is None:
            token = mint()
            self.keep(api, token)
        return token

    def _all(self) -> dict[str, str]:
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: not readable as kept tokens: {error} (remove it to start anew)") from error
        return {str(api): str(token) for api, token in kept.items()}
