"""The settings of authorization, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .rows import TextForm, row, text_row

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_principals(text: str) -> frozenset[str]:
    """The principals of TYPE:NAME;TYPE:NAME. Raises ValueError."""
    principals = frozenset(filter(None, map(str.strip, text.split(";"))))
    for principal in principals:
        type_, colon, name = principal.partition(":")
        if not (type_ and colon and name):
            raise ValueError(f"the principal {principal!r} is not TYPE:NAME, as in User:alice")
    return principals


def _are_principals(text: str) -> bool:
    try:
        parse_principals(text)
    except ValueError:
        return False
    return True


AUTHORIZER: Final = TextForm(
    lambda text: text in ("", STANDARD_AUTHORIZER),
    f"{STANDARD_AUTHORIZER}, or nothing for a server that allows everything",
    STANDARD_AUTHORIZER,
)
PRINCIPALS: Final = TextForm(
    _are_principals, "TYPE:NAME;TYPE:NAME, as in User:admin;User:CN=ops,O=Acme", "principals, with semicolons"
)


@dataclass(frozen=True)
class AuthorizationRows:
    """A part of ``table.Settings``. Without slots, since several bases of a class cannot have them."""

    authorizer_class_name: str = text_row(
        "",
        "With Kafka's class, clients may do what ACLs allow. Without it, they may do everything.",
        form=AUTHORIZER,
    )
    super_users: str = text_row(
        "", "Principals that may do everything, as in User:admin;User:ops. They need no ACLs.", form=PRINCIPALS
    )
    allow_everyone_if_no_acl_found: bool = row(
        False,
        "Whether everybody may do everything with a resource that no ACL matches. Otherwise only super users may.",
    )
