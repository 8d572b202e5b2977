"""Who may ask: hosts, origins and sizes are checked before anything else, and every answer carries a strict policy."""

import contextlib
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deeplinear.lab._errors import Failure, response_of
from deeplinear.lab._settings import Settings

EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""The digest of no text: Plotly makes an empty style element, and fills it rule by rule from its script."""

MAPS = "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='"
"""The digest of the styles of maps that Plotly 4.1 adds at its start; refused, they would be a complaint in the log."""

# Style sheets are files of this server and the two above. Style attributes are free: Plotly sets some as text.
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {EMPTY} {MAPS}; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

READING = ("GET", "HEAD", "OPTIONS")


def host_of(value: str) -> str:
    """The name in a `Host` header or an address, without port and brackets; nothing if it cannot be read."""
    try:
        return (urlsplit(f"//{value}" if "//" not in value else value).hostname or "").lower()
    except ValueError:
        return ""


class _Told(Exception):
    """The head of an answer was sent, and nothing more is wanted."""


class Guard:
    """Refuses foreign hosts and origins and large requests, adds headers, and answers HEAD as GET without a body."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    def _refusal(self, headers: Headers, method: str) -> Failure | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if host_of(host) not in self.settings.hosts:
            text = f"This server does not answer under the name '{host[:100]}'; dln lab --names NAME lets it."
            return Failure(kind="refused", message=text)
        if origin is not None and origin.partition("//")[2].lower() != host.lower():
            return Failure(kind="refused", message="Requests from pages of other servers are refused.")
        if method not in READING and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Failure(kind="refused", message="Requests from pages of other servers are refused.")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.settings.body_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> Failure:
        return Failure(
            kind="size", message=f"A request may have {self.settings.body_bytes:,} bytes, this one has more."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        head_only = scope["method"] == "HEAD"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)
            if head_only and message["type"] == "http.response.start":
                await send({"type": "http.response.body", "body": b""})
                raise _Told

        with contextlib.suppress(_Told):
            await self._guarded({**scope, "method": "GET"} if head_only else scope, receive, sending)

    async def _guarded(self, scope: Scope, receive: Receive, sending: Send) -> None:
        refusal = self._refusal(Headers(scope=scope), scope["method"])
        if refusal is not None:
            await response_of(refusal)(scope, receive, sending)
            return
        taken = 0
        body: list[Message] = []
        if scope["method"] not in READING:
            # Read here, so that a request without a stated length cannot fill the memory.
            while True:
                message = await receive()
                body.append(message)
                taken += len(message.get("body", b""))
                if taken > self.settings.body_bytes:
                    await response_of(self._too_large())(scope, receive, sending)
                    return
                if message["type"] != "http.request" or not message.get("more_body"):
                    break

        async def receiving() -> Message:
            return body.pop(0) if body else await receive()

        await self.app(scope, receiving, sending)
