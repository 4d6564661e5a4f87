"""`slackwater docs`: the documentation in a browser."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from slackwater.cli.command import command_group, epilog
from slackwater.cli.options import option
from slackwater.cli.output import print_text

group = command_group("docs", "The documentation in a browser.")


@group.command(epilog=epilog("slackwater docs serve", "slackwater docs serve --port 8000"))
def serve(
    port: Annotated[int | None, option(metavar="PORT", min=1, max=65535, text="The port. Default: a free one.")] = None,
) -> None:
    """Show the documentation as a site with a search, on this machine only, until Ctrl-C.

    It needs the extra `docs`, and no network.
    """
    from slackwater.dev.documentation import build_site, served, site_pages

    with TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        site = build_site(site_pages(), Path(folder))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell may have made it ignore SIGINT
            signal.signal(number, signal.default_int_handler)
        with served(site, port) as server:
            print_text(f"http://127.0.0.1:{server.server_port}/", style="green")
            print_text("Ctrl-C stops it.")
            sys.stdout.flush()  # also a program that reads the output gets the URL
            server.serve_forever()
