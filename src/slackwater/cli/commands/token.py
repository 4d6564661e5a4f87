"""`slackwater token`: partners' bearer tokens."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command, command_group
from slackwater.cli.options import argument, option
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.client.arguments import check_grant
from slackwater.errors import InputError, UnknownName

if TYPE_CHECKING:
    from slackwater.client.results import Token

_COLUMNS = ("id", "partner", "sources", "created (UTC)", "expires (UTC)", "state")
# 6 digits or more of a SHA-256 digest in hexadecimal: fewer would often belong to several tokens.
_ID_PREFIX = re.compile(r"[0-9a-f]{6,64}")

group = command_group("token", "Bearer tokens with which partners push.")


@command(
    "slackwater token create acme --source weather",
    "slackwater token create acme --source weather --source flights --days 90",
    "slackwater token create auditor --source '*' --json",
    group=group,
    writes=True,
)
def create(
    partner: Annotated[str, argument("PARTNER", "The partner's name: letters, digits, '.', '_', '-'.")],
    source: Annotated[
        list[str],
        option(
            metavar="SOURCE",
            text="A source that the token may push to. Can be repeated; * means all, also sources added later.",
        ),
    ],
    days: Annotated[
        int | None,
        option(metavar="N", min=1, max=3650, text="Days until the token expires. Default: it never expires."),
    ] = None,
    *,
    session: Session,
) -> Result:
    """Create a token and print it.

    The token is printed only now, because only its hash is stored. A partner can have two valid tokens: to replace one,
    create the second, give it to the partner, and revoke the first.
    """
    check_grant(session.project, partner, source)
    expires_at = datetime.now(UTC) + timedelta(days=days) if days else None
    new = session.client.tokens.create(partner, source, expires_at=expires_at)

    def view() -> None:
        until = f" until {_format_time(expires_at)} UTC" if expires_at else ""
        sources = ", ".join(sorted(new.token.sources))
        # The note goes to standard error, so that standard output has the token alone.
        print_note(
            f"{partner} may push to {sources}{until} with this token. Its id is {new.token.id}; it is printed once:"
        )
        print_text(new.plain)

    return Result({**token_document(new.token), "token": new.plain}, view)


@command("slackwater token list", "slackwater token list acme --json", name="list", group=group)
def list_(
    partner: Annotated[str | None, argument("PARTNER", "The partner's name. Default: all partners.")] = None,
    *,
    session: Session,
) -> Result:
    """List tokens by partner and age, also expired and revoked ones.

    The tokens themselves are never shown.
    """
    chosen = [token for token in session.client.tokens.all() if partner in {None, token.partner}]
    now = datetime.now(UTC)
    rows = [
        (
            token.id,
            token.partner,
            ", ".join(sorted(token.sources)),
            _format_time(token.created_at),
            _format_time(token.expires_at),
            token.state(now),
        )
        for token in chosen
    ]
    missing = f"no tokens yet (slackwater token create {partner or 'PARTNER'} --source SOURCE)"
    document = {"tokens": [token_document(token) for token in chosen]}
    return Result(document, partial(print_table, _COLUMNS, rows) if rows else missing)


@command("slackwater token revoke 3f2a91c04b7d", "slackwater token revoke --all acme --json", group=group, writes=True)
def revoke(
    token: Annotated[str | None, argument("ID", "The token's id, or its first digits (6 or more).")] = None,
    all_of: Annotated[
        str | None, option("--all", metavar="PARTNER", text="Revoke every valid token of this partner.")
    ] = None,
    *,
    session: Session,
) -> Result:
    """Revoke a token, or all tokens of a partner.

    The API refuses a revoked token after half a minute at the latest.
    """
    if (token is None) == (all_of is None):
        raise InputError("ID or --all PARTNER: give one of them (slackwater token list shows the ids)")
    digits = (token or "").lower()
    if token is not None and not _ID_PREFIX.fullmatch(digits):
        # The user may have typed the token itself, so the message must not repeat it.
        raise InputError(
            "ID: 6 digits or more of an id are expected, such as 3f2a91c04b7d (slackwater token list shows the ids; "
            "all tokens of a partner: slackwater token revoke --all PARTNER)"
        )
    tokens = session.client.tokens
    known = tokens.all()
    if all_of is not None:
        of_partner = [item for item in known if item.partner == all_of]
        if not of_partner:
            raise UnknownName(f"--all: no partner {all_of!r} has a token (slackwater token list shows the partners)")
        chosen = [item for item in of_partner if item.valid(datetime.now(UTC))]
    else:
        chosen = [item for item in known if item.token_hash.startswith(digits)]
        if not chosen:
            raise UnknownName(f"ID: no token {digits} (slackwater token list shows the ids)")
        if len(chosen) > 1:
            ids = " and ".join(item.id for item in chosen)
            raise InputError(f"ID: {digits} is the beginning of the ids {ids}: give more digits")
    for item in chosen:
        tokens.revoke(item)
    lines = "\n".join(f"revoked {item.id} of {item.partner}" for item in chosen)
    document = {"revoked": [token_document(item) | {"state": "revoked"} for item in chosen]}
    return Result(document, lines or f"{all_of} has no valid token")


def token_document(token: Token) -> dict[str, Any]:
    """Return a token as its JSON document, without the token itself and its hash."""
    return {
        "id": token.id,
        "partner": token.partner,
        "sources": sorted(token.sources),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "state": token.state(datetime.now(UTC)),
    }


def _format_time(value: datetime | None) -> str | None:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}" if value else None
