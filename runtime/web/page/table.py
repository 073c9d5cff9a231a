"""The pages. A page is one module, one template and one row here."""

from __future__ import annotations

from typing import Final

from . import forms, group, groups, topics
from .row import Page

PAGES: Final = (
    Page("/", "groups.html", groups.show, nav="Groups"),
    Page("/groups/{group}", "group.html", group.show),
    Page("/changes/{change}", "change.html", forms.show_change),
    Page("/topics", "topics.html", topics.show, nav="Topics"),
    Page("/topics/{topic}", "topic.html", topics.show_one),
)
"""The navigation has their order."""
