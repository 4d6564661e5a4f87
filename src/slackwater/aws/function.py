"""What all Lambda functions have in common: settings from environment variables."""

from __future__ import annotations

import os
from typing import Self

from pydantic import BaseModel, ConfigDict


class FunctionEnvironment(BaseModel):
    """Base of a function's settings: each field is the environment variable of its name in upper case."""

    model_config = ConfigDict(alias_generator=str.upper, frozen=True)

    @classmethod
    def read(cls) -> Self:
        """Read the settings. Raises `pydantic.ValidationError` when a variable is missing."""
        return cls.model_validate(dict(os.environ))
