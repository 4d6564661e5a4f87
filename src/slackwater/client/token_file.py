"""The bearer tokens that a client pushes with, in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slackwater.errors import InputError


@dataclass(frozen=True)
class TokenFile:
    """A file of bearer tokens, one for each API, readable only by its owner. A token is sent only to its API."""

    path: Path

    def token(self, api: str) -> str | None:
        """Return the token for that API, None if there is none. Raises `InputError` for an unreadable file."""
        return self._read().get(api)

    def save(self, api: str, token: str) -> None:
        """Save a token; it replaces an earlier one for that API. Raises `InputError` for an unreadable file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps(self._read() | {api: token}, indent=1)
        # A new file replaces the old one, so another command never reads half a file.
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        # The mode is set when the file is created: others cannot read it at any time.
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content)
        new.replace(self.path)

    def get_or_create(self, api: str, create: Callable[[], str]) -> str:
        """Return the token for that API; on first use, create and save one."""
        token = self.token(api)
        if token is None:
            token = create()
            self.save(api, token)
        return token

    def _read(self) -> dict[str, str]:
        try:
            tokens = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.path}: this file of tokens cannot be read: {error} (remove it: the next push creates a new one)"
            ) from error
        return {str(api): str(token) for api, token in tokens.items()}
