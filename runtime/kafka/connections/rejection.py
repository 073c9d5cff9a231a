"""Reports a connection that is closed after a bad request."""

from __future__ import annotations

import logging

from ....actors.text import printable
from .client_ids import shown_client_id
from .framing import BadRequest, NotServed, OverLimit
from .over_limit import Client, OverLimitReports

log = logging.getLogger("callboard.kafka")


def report_rejection(client: Client, reports: OverLimitReports, error: BadRequest) -> None:
    """Log why the connection is closed. A client is named once for a limit, and for what is not served."""
    if isinstance(error, OverLimit):
        reports.report(client, error.limit, error.request, f"{error.reason}; the connection is closed")
    elif not isinstance(error, NotServed):
        log.warning("connection from %s closed: %s", client.peer, error)
    elif reports.named.add(client, str(error)):
        client_id = printable(shown_client_id(client.client_id))
        log.warning("connection from %s closed: %s (client id '%s', logged once)", client.peer, error, client_id)
