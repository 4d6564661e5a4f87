"""`python -m slackwater.cli` is `slackwater`."""

from __future__ import annotations

from slackwater.cli.main import main

main()
