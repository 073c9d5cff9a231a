"""The ACLs of a group on its page."""

from __future__ import annotations

import pytest
from http_api_helpers import Api, make_groups, run
from page_helpers import rows

from callboard import Coordinator
from callboard.actors.steps import run_steps
from callboard.runtime.security.acls import Acl, AclRules, AclTable, PatternType, Permission
from callboard.runtime.security.resources import Operation, ResourceType
from callboard.runtime.web.group_acls import WhoMay, acls_of

PREFIX = Acl(ResourceType.GROUP, "im", PatternType.PREFIXED, "User:reader", "*", Operation.READ, Permission.ALLOW)
EVERYBODY = Acl(ResourceType.GROUP, "*", PatternType.LITERAL, "User:*", "*", Operation.DESCRIBE, Permission.ALLOW)
DENIED = Acl(ResourceType.GROUP, "images", PatternType.LITERAL, "User:eve", "10.0.0.7", Operation.ALL, Permission.DENY)
OTHER = Acl(ResourceType.GROUP, "mails", PatternType.LITERAL, "User:other", "*", Operation.ALL, Permission.ALLOW)
CLASS = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_everybody_whom_acls_name_is_decided_about() -> None:
    acls = [PREFIX, EVERYBODY, DENIED]
    found = acls_of(acls, AclRules(AclTable([*acls, OTHER]), frozenset({"User:admin"})), "images")
    assert list(found.who) == [
        WhoMay("User:*", "*", (False, True, False)),
        WhoMay("User:admin", "*", (True, True, True)),
        WhoMay("User:eve", "10.0.0.7", (False, False, False)),
        WhoMay("User:reader", "*", (True, True, False)),
    ]
    assert (list(found.acls), found.is_open) == (sorted(acls), False)


@pytest.mark.parametrize("is_open", [False, True])
def test_group_without_acls_is_open_if_the_settings_say_so(is_open: bool) -> None:
    found = acls_of([], AclRules(AclTable([OTHER]), allows_without_acls=is_open), "images")
    assert (list(found.who), found.is_open) == ([], is_open)


def test_tab_shows_who_may_do_what() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        store = coordinator.node.services.acls
        assert store is not None
        run_steps(store.table.replace([PREFIX, OTHER]))
        html = await api.page("groups/images?tab=acls")
        assert rows(html) == [
            "Who Host read describe delete",
            "User:admin any ✓ yes ✓ yes ✓ yes",
            "User:reader any ✓ yes ✓ yes ✕ no",
            "Principal Host Operation Permission Groups",
            "User:reader * read allow that begin with im",
        ]
        assert 'href="?tab=acls"' in await api.page("groups/images")

    run(check, authorizer_class_name=CLASS, super_users="User:admin")


def test_page_without_acls_has_no_tab() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        assert "tab=acls" not in await api.page("groups/images")
        assert "No ACL matches" in await api.page("groups/images?tab=acls")

    run(check)
