"""Who takes compressed answers."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send


def takes_gzip(accepted: str) -> bool:
    """Whether a header `Accept-Encoding` names gzip, and with a weight above zero."""
    for part in accepted.lower().split(","):
        name, *settings = (word.strip() for word in part.split(";"))
        if name == "gzip":
            return not any(word.startswith("q=") and not word[2:].strip("0.") for word in settings)
    return False


class Encoding:
    """Tells what answers behind it of gzip only: in the header there is that word, or no header."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            takes = takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
            headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            scope = {**scope, "headers": [*headers, *([(b"accept-encoding", b"gzip")] if takes else [])]}
        await self.app(scope, receive, send)
