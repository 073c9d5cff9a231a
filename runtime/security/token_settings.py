"""What tokens must say, whoever has signed them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .oauthbearer import TokenRefused


class TokenSettings(NamedTuple):
    """``name_claim``: the claim with the user's name. ``required_scope``: "" for none. ``skew_s``: of the clocks."""

    name_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: str = ""
    skew_s: int = 30
    audiences: tuple[str, ...] = ()
    issuer: str = ""

    def name_in(self, claims: Mapping[str, Any]) -> str:
        """The user's name. Raises TokenRefused without one, and without the required scope."""
        if self.required_scope and self.required_scope not in self._scopes(claims):
            raise TokenRefused(f"it lacks the scope {self.required_scope}", f"[{self.required_scope}]")
        name = claims.get(self.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenRefused(f"its claim {self.name_claim} is not a name")
        return name

    def _scopes(self, claims: Mapping[str, Any]) -> list[Any]:
        scopes = claims.get(self.scope_claim, "")
        return scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
