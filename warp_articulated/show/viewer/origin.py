"""Only the viewer's own page may talk to it.

A browser lets every web page open a WebSocket to this computer, and viser accepts all of them; so any page that is open
while the viewer runs could watch and drive it. The browser names the page's origin in a header that the page cannot
change. Programs other than browsers send none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio import server
from websockets.datastructures import Headers


def is_own(headers: Headers) -> bool:
    """Whether a request comes from a page of the host that it asks, or from no page at all."""
    hosts, origins = headers.get_all("Host"), headers.get_all("Origin")
    return all([urlsplit(origin).netloc.lower()] == [host.lower() for host in hosts] for origin in origins)


@contextmanager
def own_pages_only() -> Iterator[None]:
    """Servers of the websockets package that start within refuse the requests of other pages.

    viser has no option for it, and starts its server in its constructor.
    """
    plain, used = server.serve, False

    def serve(handler, *args, process_request=None, **options):
        nonlocal used
        used = True

        def check(connection, request):
            if not is_own(request.headers):
                return connection.respond(HTTPStatus.FORBIDDEN, "Only pages of this viewer may connect to it.\n")
            return process_request(connection, request) if process_request is not None else None

        return plain(handler, *args, process_request=check, **options)

    module: Any = server  # its serve is a class for type checkers
    module.serve = serve
    try:
        yield
    finally:
        module.serve = plain
    if not used:
        raise RuntimeError("this version of viser would accept every web page; install viser>=1.1,<1.2.")
