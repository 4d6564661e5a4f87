"""`slackwater token`: bearer tokens for partners."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, remark, say, table
from slackwater.errors import InputError, UnknownName

if TYPE_CHECKING:
    from slackwater.project import Project
    from slackwater.receiver.push.tokens import Token

_COLUMNS = ("id", "partner", "sources", "created (UTC)", "expires (UTC)", "state")
_ID = re.compile(r"[0-9a-f]{6,64}")

group = typer.Typer(name="token", help="Bearer tokens with which partners push.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `token create`, `token list` and `token revoke`."""
    app.add_typer(group)


@group.command(
    epilog=examples(
        "slackwater token create acme --source weather",
        "slackwater token create acme --source weather --source flights --days 90",
        "slackwater token create auditor --source '*' --json",
    )
)
def create(
    partner: Annotated[
        str,
        typer.Argument(
            metavar="PARTNER", help="Who will push with it: letters, digits, '.', '_', '-'.", show_default=False
        ),
    ],
    source: Annotated[
        list[str],
        typer.Option(
            metavar="SOURCE",
            help="What it may push to; can be given again, and * is all, those to come included.",
            show_default=False,
        ),
    ],
    days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="After so many days it expires; never otherwise.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it.

    Only its hash is stored, so this is the one time that it can be read. A partner has two valid tokens at most: to
    exchange one, make the second, hand it over, and revoke the first.
    """
    from slackwater.receiver.push.tokens import partner_name

    place = find_place(project)
    definitions = load(place)
    partner_name(partner)
    _check_sources(source, definitions)
    from slackwater.cli.session import Session

    tokens = Session.open(place, definitions).tokens
    expires_at = datetime.now(UTC) + timedelta(days=days) if days else None
    new = tokens.create(partner, source, expires_at=expires_at)
    if as_json:
        document({**_described(new.token), "token": new.plain})
    else:
        until = f" until {_time(expires_at)} UTC" if expires_at else ""
        what = f"token {new.token.id}, which is shown once"
        remark(f"{partner} may push to {', '.join(sorted(new.token.sources))}{until} with this {what}:")
        say(new.plain)


@group.command("list", epilog=examples("slackwater token list", "slackwater token list acme --json"))
def list_(
    partner: Annotated[
        str | None, typer.Argument(metavar="PARTNER", help="Of all partners otherwise.", show_default=False)
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the tokens there are and were, by partner and age; never the tokens themselves."""
    from slackwater.cli.session import Session

    found = _of(partner, Session.open(find_place(project)).tokens.all())
    if as_json:
        document({"tokens": [_described(token) for token in found]})
    elif not found:
        say(f"no tokens yet (slackwater token create {partner or 'PARTNER'} --source SOURCE)")
    else:
        table(_COLUMNS, [_row(token) for token in found])


@group.command(epilog=examples("slackwater token revoke 3f2a91c04b7d", "slackwater token revoke --all acme --json"))
def revoke(
    token: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The token's id, or the first 6 or more digits of it.", show_default=False),
    ] = None,
    all_of: Annotated[
        str | None,
        typer.Option("--all", metavar="PARTNER", help="Every valid token of that partner.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token, or all of a partner: within half a minute nobody can push with them any more."""
    match token, all_of:
        case str(), None:
            choose = partial(_with_id, _checked_id(token))
        case None, str():
            choose = partial(_valid_of, all_of)
        case _:
            raise InputError("ID or --all PARTNER: one of them is expected (slackwater token list shows the ids)")
    from slackwater.cli.session import Session

    tokens = Session.open(find_place(project)).tokens
    chosen = choose(tokens.all())
    for item in chosen:
        tokens.revoke(item)
    if as_json:
        document({"revoked": [_described(item) | {"state": "revoked"} for item in chosen]})
    elif not chosen:
        say(f"{all_of} has no valid token")
    else:
        for item in chosen:
            say(f"revoked {item.id} of {item.partner}")


def _check_sources(names: Sequence[str], definitions: Project) -> None:
    from slackwater.receiver.push.tokens import ALL_SOURCES

    for name in names:
        if name != ALL_SOURCES and definitions.source(name).push is None:
            raise InputError(f"--source: {name!r} is not pushed: its definition has no `push`")


def _checked_id(text: str) -> str:
    digits = text.lower()
    if not _ID.fullmatch(digits):
        # It may be the token itself, which nothing repeats.
        raise InputError(
            "ID: 6 digits or more of an id are expected, such as 3f2a91c04b7d (slackwater token list shows the ids; "
            "all tokens of a partner: slackwater token revoke --all PARTNER)"
        )
    return digits


def _with_id(digits: str, tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the one token. Raises `UnknownName`, or `InputError` when more than one begins so."""
    found = [token for token in tokens if token.token_hash.startswith(digits)]
    if not found:
        raise UnknownName(f"ID: no token {digits} (slackwater token list shows the ids)")
    if len(found) > 1:
        raise InputError(f"ID: {digits} begins the ids {' and '.join(token.id for token in found)}: give more digits")
    return found


def _of(partner: str | None, tokens: Sequence[Token]) -> Sequence[Token]:
    return [token for token in tokens if partner in {None, token.partner}]


def _valid_of(partner: str, tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the partner's valid tokens, if any are. Raises `UnknownName` for who never had one."""
    found = _of(partner, tokens)
    if not found:
        raise UnknownName(f"--all: no partner {partner!r} has a token (slackwater token list shows who has)")
    return [token for token in found if token.valid(datetime.now(UTC))]


def _time(value: datetime | None) -> str | None:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}" if value else None


def _row(token: Token) -> list[Any]:
    state = token.state(datetime.now(UTC)).value
    sources = ", ".join(sorted(token.sources))
    return [token.id, token.partner, sources, _time(token.created_at), _time(token.expires_at), state]


def _described(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "partner": token.partner,
        "sources": sorted(token.sources),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "state": token.state(datetime.now(UTC)).value,
    }
