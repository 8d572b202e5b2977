"""The page of results: addresses of what a store holds, its pictures, and the errata.

Names from a request are only looked up in what the store itself lists; no path is made of them. A store may come from
elsewhere: its texts are sent, and shown, as text and never as HTML.
"""

import functools
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Response

from deeplinear.lab._errors import ErrorBody
from deeplinear.lab._settings import Settings
from deeplinear.lab._store_models import PICTURES, Errata, RunDetail, StoreInfo

if TYPE_CHECKING:
    from deeplinear.lab._shelf import Shelf

RESPONSES: dict[int | str, dict[str, Any]] = {404: {"model": ErrorBody, "description": "It is not in the store."}}


def store_router(settings: Settings) -> APIRouter:
    """Addresses of the page of results, for the store of the settings. What reads it is imported when asked for."""
    router = APIRouter(tags=["Results"])

    @functools.cache
    def shelf() -> "Shelf":
        from deeplinear.lab._shelf import Shelf

        return Shelf(settings.store)

    @router.get("/api/store", response_model=StoreInfo)
    def contents() -> StoreInfo:
        """What the store holds."""
        return shelf().info()

    @router.get("/api/store/runs/{key}", response_model=RunDetail, responses=RESPONSES)
    def run(key: str) -> RunDetail:
        """A run in full."""
        return shelf().run(key)

    @router.get(
        "/api/store/pictures/{digest}",
        response_class=Response,
        responses={
            **RESPONSES,
            200: {"content": {kind: {} for kind in PICTURES.values()}, "description": "The picture."},
        },
    )
    def picture(digest: str) -> Response:
        """A picture by the digest of its file."""
        data, kind = shelf().picture(digest)
        # What has a digest never changes.
        return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=86400, immutable"})

    @router.get("/api/errata", response_model=Errata)
    def errata() -> Errata:
        """Statements that are printed wrongly, their right forms, and what was measured."""
        return shelf().errata()

    return router
