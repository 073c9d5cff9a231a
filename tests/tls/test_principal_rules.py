"""Principal mapping rules, with the examples of KIP-371 and of Kafka's documentation."""

from __future__ import annotations

import pytest

from callboard.runtime.common.errors import StartError
from callboard.runtime.tls.principal_rules import NoRuleMatches, apply_rules, parse_rules

KIP_371 = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    r"DEFAULT"
)


def principal(rules: str, name: str) -> str:
    return apply_rules(parse_rules(rules), name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=JohnDoe,ou=SME,o=mycp,l=Fulton,st=MD,c=US", "johndoe"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_first_rule_that_matches_decides(name: str, expected: str) -> None:
    assert principal(KIP_371, name) == expected


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("", "CN=a", "CN=a"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/$1/U", "CN=ab", "AB"),
        ("RULE:^CN=(.*)$/$1/ , DEFAULT", "OU=a", "OU=a"),
        ("RULE:^CN=(.*)$/user-$12/", "CN=a", "user-a2"),  # one group: $1 and "2"
        ("RULE:^CN=(.*)$/$2x/", "CN=a", "$2x"),  # no such group
        (r"RULE:^CN=(.*)$/\$1/", "CN=a", "$1"),
        (r"RULE:^CN=a\/b$/c\/d/", "CN=a/b", "c/d"),
        ("RULE:^CN=(a)|OU=(b)$/$1$2/", "OU=b", "b"),
        ("RULE:CN=/x/", "CN=CN=", None),  # it has to match the whole name
        ("RULE:(CN=)+/x/", "CN=CN=", "x"),
        ("RULE:a*/x/", "aa", "xx"),  # as Java's replaceAll: the empty match at the end, too
    ],
)
def test_replacement(rules: str, name: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(NoRuleMatches, match="no rule of ssl_principal_mapping_rules matches the name 'CN=CN='"):
            principal(rules, name)
    else:
        assert principal(rules, name) == expected


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("default", "bad ssl_principal_mapping_rules 'default': expected RULE:PATTERN/REPLACEMENT/"),
        ("DEFAULT,RULE:a/b", "'RULE:a/b': expected"),
        ("RULE:a/b/X", "'RULE:a/b/X': expected"),
        ("RULE:(a/b/", r"'RULE:\(a/': .*; expected a regular expression of Python's"),
    ],
)
def test_other_text_is_refused(rules: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        parse_rules(rules)
