"""The server: addresses, and what stands behind them."""

import asyncio
import contextlib
import functools
import gzip
import importlib.resources
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Request, Response
from pydantic import BaseModel
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, StreamingResponse
from starlette.staticfiles import StaticFiles

from deeplinear._about import __version__
from deeplinear.lab._encoding import Encoding
from deeplinear.lab._errors import ErrorBody, Failure, install
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Params, Room, View
from deeplinear.lab._runs import Ticket, messages
from deeplinear.lab._security import Guard
from deeplinear.lab._service import Service
from deeplinear.lab._settings import Settings
from deeplinear.lab._store import store_router
from deeplinear.lab._text import to_html
from deeplinear.lab.rooms import ROOMS

STATIC = importlib.resources.files("deeplinear.lab") / "static"

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        403: "Refused: foreign host or origin.",
        405: "The address does not take this method; the header Allow has those it takes.",
        409: "Values that do not go together, or for which a hypothesis of the theory does not hold.",
        413: "Too large.",
        422: "A value is wrong.",
        500: "The server failed.",
        503: "Busy, or out of time.",
    }.items()
}
MISSING: dict[int | str, dict[str, Any]] = {404: {"model": ErrorBody, "description": "There is no such thing."}}

POLL = 0.05
"""Seconds between two looks at a simulation by a listener."""

PULSE = 15.0
"""Seconds of silence after which a stream says that it is alive."""


class ViewInfo(BaseModel):
    """A view as the page needs it: `parameters` is their JSON schema, with controls."""

    name: str
    title: str
    kind: Literal["closed", "run"]
    hint: str
    has_command: bool
    parameters: dict[str, Any]
    defaults: dict[str, Any]


class PresetInfo(BaseModel):
    """Values to begin with."""

    title: str
    view: str
    values: dict[str, Any]
    about: str


class RoomInfo(BaseModel):
    """A room as the page needs it, texts as HTML."""

    name: str
    title: str
    story: str
    mathematics: str
    views: list[ViewInfo]
    presets: list[PresetInfo]


class Status(BaseModel):
    """How busy the server is: closed forms and simulations that are computed or wait, and bytes of answers it keeps."""

    version: str
    answers: int
    runs: int
    cached_bytes: int


class Code(BaseModel):
    """The same computation as a script, and as a command where there is one."""

    python: str
    command: str | None


class Started(BaseModel):
    """A simulation that was started or joined."""

    id: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]


class RunState(Started):
    """A simulation: how far it is, and its outcome."""

    fraction: float
    text: str
    answer: Answer | None
    failure: Failure | None


def room_info(room: Room) -> RoomInfo:
    """What the page is told of a room."""
    views = [
        ViewInfo(
            name=view.name,
            title=view.title,
            kind=view.kind,
            hint=view.hint,
            has_command=view.command is not None,
            parameters=view.params.model_json_schema(),
            defaults=view.params().model_dump(mode="json"),
        )
        for view in room.views
    ]
    presets = [PresetInfo(title=p.title, view=p.view, values=p.values, about=p.about) for p in room.presets]
    return RoomInfo(
        name=room.name,
        title=room.title,
        story=to_html(room.story),
        mathematics=to_html(room.mathematics),
        views=views,
        presets=presets,
    )


@functools.cache
def _plotly(compressed: bool) -> bytes:
    """Plotly's script as its package ships it."""
    from plotly.offline import get_plotlyjs

    return gzip.compress(_plotly(False)) if compressed else get_plotlyjs().encode()


def _add_view(app: FastAPI, service: Service, room: Room, view: View) -> None:
    """The addresses of a view."""
    base = f"/api/rooms/{room.name}/{view.name}"
    name = f"{room.name}_{view.name}".replace("-", "_")

    async def answer(params: Params) -> Response:
        found, took = await service.answer(room, view, params)
        return Response(found, media_type="application/json", headers={"Server-Timing": f"compute;dur={took:.1f}"})

    async def start(params: Params) -> Started:
        ticket = service.start(room, view, params)
        return Started(id=ticket.id, state=ticket.state)

    async def code(params: Params) -> Code:
        return Code(python=view.python(params), command=view.command(params) if view.command else None)

    async def kept(params: Params) -> Response:
        found = service.kept(room, view, params)
        return Response(status_code=204) if found is None else Response(found, media_type="application/json")

    for function in (answer, start, code, kept):
        function.__annotations__["params"] = view.params
    if view.kind == "closed":
        app.post(
            base, response_model=Answer, summary=view.title, operation_id=name, tags=[room.title], responses=ERRORS
        )(answer)
    else:
        app.post(
            f"{base}/runs",
            response_model=Started,
            status_code=202,
            summary=f"{view.title}: start",
            operation_id=f"{name}_start",
            tags=[room.title],
            responses=ERRORS,
        )(start)
        app.post(
            f"{base}/kept",
            response_model=Answer,
            summary=f"{view.title}: the answer of an earlier simulation with these values",
            operation_id=f"{name}_kept",
            tags=[room.title],
            responses={**ERRORS, 204: {"description": "None is kept."}},
        )(kept)
    app.post(
        f"{base}/code",
        response_model=Code,
        summary=f"{view.title}: as a script",
        operation_id=f"{name}_code",
        tags=[room.title],
        responses=ERRORS,
    )(code)


def _add_runs(app: FastAPI, service: Service) -> None:
    """The addresses of simulations."""
    responses = {**ERRORS, **MISSING}

    @app.get("/api/runs/{run}", response_model=RunState, responses=responses, tags=["Simulations"])
    async def run_state(run: str) -> RunState:
        ticket = service.runs.ticket(run)
        task = ticket.task
        answer = Answer.model_validate_json(task.answer) if task.answer else None
        return RunState(
            id=ticket.id,
            state=ticket.state,
            fraction=task.fraction,
            text=task.text,
            answer=answer,
            failure=task.failure,
        )

    @app.delete("/api/runs/{run}", response_model=Started, responses=responses, tags=["Simulations"])
    async def cancel(run: str) -> Started:
        ticket = service.runs.ticket(run)
        ticket.cancelled = True
        return Started(id=ticket.id, state=ticket.state)

    async def heard(run: str) -> AsyncIterator[Ticket]:
        # FastAPI leaves this when the answer has ended in any way: sent, broken off, or begun for its head only.
        with service.runs.listening(run) as ticket:
            yield ticket

    @app.get(
        "/api/runs/{run}/events",
        response_class=StreamingResponse,
        responses={**responses, 200: {"content": {"text/event-stream": {}}, "description": "Progress and outcome."}},
        tags=["Simulations"],
    )
    async def events(ticket: Annotated[Ticket, Depends(heard)]) -> StreamingResponse:
        async def stream() -> AsyncIterator[bytes]:
            seen, silent, last = -1, 0.0, False
            while not last:
                found, seen, last = messages(ticket, seen)
                for message in found:
                    yield message
                silent = 0.0 if found else silent + POLL
                if silent > PULSE:
                    silent = 0.0
                    yield b": alive\n\n"
                if not last:
                    await asyncio.sleep(POLL)

        return StreamingResponse(stream(), media_type="text/event-stream")


def create_app(settings: Settings | None = None, rooms: tuple[Room, ...] = ROOMS) -> FastAPI:
    """The lab as an application.

    Args:
        settings: Limits.
        rooms: Theories to play with.
    """
    settings = settings or Settings()
    service = Service(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.open()
        yield
        service.close()

    app = FastAPI(
        title="deeplinear lab",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    app.add_middleware(Encoding)
    app.add_middleware(Guard, settings=settings)
    install(app)

    @app.get("/api/status", response_model=Status, responses=ERRORS, tags=["Server"])
    async def status() -> Status:
        return Status(version=__version__, **service.status())

    @app.get("/api/rooms", response_model=list[RoomInfo], responses=ERRORS, tags=["Server"])
    def listing() -> list[RoomInfo]:
        return [room_info(room) for room in rooms]

    for room in rooms:
        for view in room.views:
            _add_view(app, service, room, view)
    _add_runs(app, service)
    app.include_router(store_router(settings), responses=ERRORS)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(str(STATIC / "index.html"), headers={"Cache-Control": "no-cache"})

    @app.get("/plotly.js", include_in_schema=False)
    def plotly(request: Request) -> Response:
        headers = {"Cache-Control": "public, max-age=86400"}
        compressed = "gzip" in request.headers.get("accept-encoding", "")
        if compressed:  # once, and not for every answer; where it is plain the middleware sets Vary
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(_plotly(compressed), media_type="text/javascript", headers=headers)

    app.mount("/static", StaticFiles(directory=str(STATIC)), name="static")
    return app
