"""The rooms of the lab, one for each theory."""

from deeplinear.lab._room import Room
from deeplinear.lab.rooms._completion import ROOM as COMPLETION
from deeplinear.lab.rooms._geometry import ROOM as GEOMETRY
from deeplinear.lab.rooms._landscape import ROOM as LANDSCAPE
from deeplinear.lab.rooms._lazy_rich import ROOM as LAZY_RICH
from deeplinear.lab.rooms._recurrent import ROOM as RECURRENT

ROOMS: tuple[Room, ...] = (LAZY_RICH, COMPLETION, LANDSCAPE, GEOMETRY, RECURRENT)
