"""`python -m slackwater.cli` is `slackwater`, and both start here: without the packages of the command line, too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and exit with its exit code."""
    try:
        from slackwater.cli import main as command_line
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error.name} is not installed: install Slackwater with the extra `cli`")
    command_line.main()


if __name__ == "__main__":
    main()
