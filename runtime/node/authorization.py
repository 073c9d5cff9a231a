"""What decides about the rights of clients: the authorizer that the settings name."""

from __future__ import annotations

from ..common.errors import StartError
from ..kafka.authorization.acl_authorizer import AclAuthorizer
from ..kafka.authorization.authorizer import AllowAll, Authorizer
from ..security.acl_store import AclStore
from ..security.store import SecurityStore
from ..settings.authorization import parse_principals
from ..settings.table import Settings


def make_authorizer(settings: Settings, security: SecurityStore) -> Authorizer:
    """Raises StartError if the stored ACLs are damaged."""
    if not settings.authorizer_class_name:
        return AllowAll()
    try:
        acls = AclStore(security)
    except (ValueError, KeyError, TypeError) as error:
        raise StartError(
            f"the stored ACLs are invalid: {error}; restore the data folder's file from a backup"
        ) from None
    return AclAuthorizer(
        acls,
        parse_principals(settings.super_users),
        allows_without_acls=settings.allow_everyone_if_no_acl_found,
    )
