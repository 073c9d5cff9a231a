"""The pages. A page is one module, one template and one row here."""

from __future__ import annotations

from typing import Final

from . import actors, audit, forms, group, groups, log, settings, topics
from .row import Page

PAGES: Final = (
    Page("/", "groups.html", groups.show, nav="Groups"),
    Page("/groups/{group}", "group.html", group.show),
    Page("/changes/{change}", "change.html", forms.show_change),
    Page("/topics", "topics.html", topics.show, nav="Topics"),
    Page("/topics/{topic}", "topic.html", topics.show_one),
    Page("/actors", "actors.html", actors.show, nav="Actors"),
    Page("/log", "log.html", log.show, nav="Log"),
    Page("/audit", "audit.html", audit.show, nav="Audit"),
    Page("/settings", "settings.html", settings.show, nav="Settings"),
)
"""The navigation has their order."""
