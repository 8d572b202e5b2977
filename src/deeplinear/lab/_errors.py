"""Every failure of the server in one shape, with a sentence for a person."""

from typing import Annotated, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from deeplinear.lab._complaints import complaints

Kind = Literal["invalid", "value", "hypothesis", "numerical", "missing", "busy", "refused", "size", "time", "internal"]

STATUS: dict[Kind, int] = {
    "invalid": 422,  # a value by itself
    "value": 409,  # values that do not go together
    "hypothesis": 409,
    "numerical": 409,
    "missing": 404,
    "busy": 503,
    "refused": 403,
    "size": 413,
    "time": 503,
    "internal": 500,
}
"""Status of HTTP for each kind of failure."""


def sendable(text: str) -> str:
    """The text with escapes in place of what JSON may hold but UTF-8 may not: halves of pairs of code units."""
    return text.encode("utf-8", "backslashreplace").decode()


Text = Annotated[str, BeforeValidator(sendable)]


class Failure(BaseModel):
    """What went wrong: its kind, a sentence, and the parameters it concerns."""

    kind: Kind
    message: Text
    fields: list[Text] = []


class ErrorBody(BaseModel):
    """The shape of every answer that is not a success."""

    error: Failure


class LabError(Exception):
    """A failure that is told to whoever asked."""

    def __init__(self, kind: Kind, message: str, fields: list[str] | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, fields=fields or [])


def failure_of(error: Exception) -> Failure:
    """A failure from whatever the library raised."""
    from deeplinear.core import HypothesisError, NumericalError

    if isinstance(error, LabError):
        return error.failure
    if isinstance(error, HypothesisError):
        return Failure(kind="hypothesis", message=str(error))
    if isinstance(error, NumericalError):
        return Failure(kind="numerical", message=str(error))
    if isinstance(error, (ValueError, TypeError)) and not isinstance(error, (UnicodeError, ValidationError)):
        return Failure(kind="value", message=str(error))
    return Failure(kind="internal", message="The server failed; its log says where. Try other values.")


def response_of(failure: Failure) -> JSONResponse:
    """The failure as an answer."""
    headers = {"Retry-After": "2"} if failure.kind == "busy" else None
    return JSONResponse(ErrorBody(error=failure).model_dump(), STATUS[failure.kind], headers)


def _allowed(request: Request) -> str:
    """What an address takes, for the header `Allow`."""
    routes = [one for one in request.app.routes if one.matches(request.scope)[0] is not Match.NONE]
    methods = {method for one in routes for method in getattr(one, "methods", None) or ()}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def install(app: FastAPI) -> None:
    """Make the application answer every failure in this shape."""

    @app.exception_handler(LabError)
    async def _lab(request: Request, error: LabError) -> JSONResponse:
        return response_of(error.failure)

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> JSONResponse:
        model = getattr(request.scope.get("endpoint"), "__annotations__", {}).get("params")
        message, fields = complaints(error.errors(), model)
        return response_of(Failure(kind="invalid", message=message, fields=fields))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:
            return response_of(Failure(kind="invalid", message="The request must be JSON, but cannot be read as such."))
        message = {
            404: f"There is nothing at {request.url.path}.",
            405: f"{request.url.path} does not take {request.method}.",
        }.get(error.status_code, str(error.detail))
        kind: Kind = "missing" if error.status_code == 404 else "refused"
        body = ErrorBody(error=Failure(kind=kind, message=message))
        headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
        return JSONResponse(body.model_dump(), error.status_code, headers)

    @app.exception_handler(Exception)
    async def _any(request: Request, error: Exception) -> JSONResponse:
        return response_of(failure_of(error))
