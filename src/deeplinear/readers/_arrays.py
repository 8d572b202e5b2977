"""Arrays of .npy, .npz and .safetensors files: headers first, every number of them compared with the file."""

import dataclasses
import math
import re
import struct
import zipfile
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from deeplinear.readers._documents import parse_json
from deeplinear.readers._source import LARGEST_UNPACKED, FileError, Source

MOST_NUMBERS = 2**28
"""Numbers of all arrays that are read from a file together: two gigabytes in 64 bits."""

MOST_MEMBERS = 2**14
"""Files in an archive."""

MOST_AXES = 32

LARGEST_RATIO = 100
"""Times that a large array may be larger than its compressed bytes."""

LARGEST_HEADER = {".npy": 10_000, ".safetensors": 2**24}
"""Bytes of the description of arrays."""

NO_ARCHIVE = "it is not a whole archive of arrays"

PIECE = 2**24
"""Bytes that are read at a time."""

MAGIC = b"\x93NUMPY"

FIELD = re.compile(
    rb"""(['"])(descr|fortran_order|shape)\1:(?:"""
    rb"""(['"])(?P<kind>[<>|=]?(?:[biufcSUV][0-9]{1,9}|[mM]8(?:\[[0-9A-Za-z]{1,8}\])?|O|\?))\3"""
    rb"""|(?P<flag>True|False)|\((?P<shape>(?:[0-9]{1,19}L?,)*(?:[0-9]{1,19}L?)?)\)),?"""
)
"""An entry of the header of an .npy file without white space."""

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Numbers of a safetensors file that are read, as NumPy holds them; BF16 is the upper half of an F32."""

ROUNDINGS = {"F64": 2.0**-52, "F32": 2.0**-23, "F16": 2.0**-10, "BF16": 2.0**-7}
"""Relative distance of neighbouring numbers of these kinds."""


class Layout(NamedTuple):
    """What a header says of an array.

    Attributes:
        shape: Its shape.
        kind: Its type as the file calls it.
        dtype: Its type in NumPy, in the byte order of this machine; objects where it holds no plain numbers.
        offset: Place of its first byte, in the file or in the member of the archive.
        by_columns: Whether its numbers lie column by column.
    """

    shape: tuple[int, ...]
    kind: str
    dtype: np.dtype
    offset: int
    by_columns: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class StoredArray:
    """An array of a file whose header is known and whose numbers are read on demand.

    Attributes:
        source: The file.
        name: Its name in the file.
        layout: What its header says, or why that cannot be: others of the file can be read all the same.
        member: The member of the archive that holds it.
    """

    source: Source
    name: str
    layout: Layout | FileError
    member: zipfile.ZipInfo | None = None

    @property
    def described(self) -> Layout:
        """What its header says, or the error that refuses it."""
        if isinstance(self.layout, FileError):
            raise self.layout
        return self.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.described.shape

    @property
    def kind(self) -> str:
        """Its type as the file calls it."""
        return self.described.kind

    @property
    def dtype(self) -> np.dtype:
        """Its type in NumPy, in the byte order of this machine."""
        return self.described.dtype

    @property
    def size(self) -> int:
        """Its number of entries."""
        return math.prod(self.shape)

    @property
    def rounding(self) -> float:
        """Relative distance of neighbouring numbers of its type; 0 for whole numbers."""
        return ROUNDINGS.get(self.kind, float(np.finfo(self.dtype).eps) if self.dtype.kind in "fc" else 0.0)

    def read(self) -> np.ndarray:
        """Return its numbers in the byte order of this machine; numbers of a safetensors file in 64 bits."""
        _, kind, dtype, offset, by_columns = self.described
        if dtype.hasobject:
            raise self.source.refused(f"'{self.name}' holds Python objects", "save it as an array of numbers")
        check_together([self])
        stored = np.dtype(FLOATS.get(kind, kind))
        if self.member is None:
            with self.source.opened() as file:
                file.seek(offset)
                raw = self._numbers(file, stored)
        else:
            with (
                self.source.opened(NO_ARCHIVE) as file,
                zipfile.ZipFile(file) as content,
                content.open(self.member) as member,
            ):
                member.read(offset)
                raw = self._numbers(member, stored)
        array = raw.reshape(self.shape, order="F" if by_columns else "C")
        if kind == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
            return array.astype(dtype, copy=False)

    def _numbers(self, file: IO[bytes], stored: np.dtype) -> np.ndarray:
        """Return the entries as a vector, read piece by piece."""
        raw = np.empty(self.size * stored.itemsize, np.uint8)
        place = 0
        while place < len(raw):
            piece = file.read(min(PIECE, len(raw) - place))
            if not piece:
                raise self.source.refused(f"'{self.name}' ends after {place:,} of {len(raw):,} bytes")
            raw[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
            place += len(piece)
        return raw.view(stored)


def open_arrays(source: Source) -> dict[str, StoredArray]:
    """Return the arrays of an .npy, .npz or .safetensors file by name, none of them read yet.

    The content decides whether a file of NumPy is one array or an archive; a single array has the name of its file.

    Raises:
        FileError: The file is damaged, or is not of its kind.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> np.savez(file, W1=np.ones((2, 3)))
        >>> open_arrays(Source("load", "w.npz", file.getvalue()))["W1"].shape
        (2, 3)
    """
    if source.ending == ".safetensors":
        return _open_safetensors(source)
    size = source.size
    if size == 0:
        raise source.refused("it is empty")
    with source.opened() as file:
        if file.read(len(MAGIC)) == MAGIC:
            file.seek(0)
            return {source.stem: StoredArray(source, source.stem, _layout(source, source.stem, file, size))}
        file.seek(0)
        if source.ending != ".npy" or zipfile.is_zipfile(file):
            return _open_archive(source, file)
    raise source.refused("it does not begin as an array of NumPy does", "write it with numpy.save")


def check_together(arrays: Iterable[StoredArray]) -> None:
    """Refuse arrays that are too large together, or compressed beyond measure, before they are read."""
    total = unpacked = packed = 0
    for array in arrays:
        source = array.source
        total += array.size
        if total > MOST_NUMBERS:
            raise source.refused(
                f"its arrays up to '{array.name}' of shape {array.shape} have {total:,} numbers, more than "
                f"{MOST_NUMBERS:,}",
                "give a part of them",
            )
        if array.member is not None:
            unpacked, packed = unpacked + array.member.file_size, packed + array.member.compress_size
            if unpacked > LARGEST_UNPACKED and unpacked > LARGEST_RATIO * packed:
                raise source.refused(
                    f"'{array.name}' unpacks {packed:,} bytes to {unpacked:,}, more than {LARGEST_RATIO} times as many",
                    "save it with numpy.savez, uncompressed",
                )


def read_arrays(arrays: Mapping[str, StoredArray]) -> dict[str, np.ndarray]:
    """Return the numbers of some arrays of a file, refused if they are too large together."""
    check_together(arrays.values())
    return {name: array.read() for name, array in arrays.items()}


# ---- NumPy -----------------------------------------------------------------------------------------------------------


def members(source: Source, file: IO[bytes]) -> list[zipfile.ZipInfo]:
    """Return the members of an archive that can be read, or refuse the archive."""
    with source.guarded(NO_ARCHIVE), zipfile.ZipFile(file) as content:
        found = content.infolist()
    if len(found) > MOST_MEMBERS:
        raise source.refused(f"it has {len(found):,} members, more than {MOST_MEMBERS:,}", "give a part of them")
    for info in found:
        name = info.filename
        if info.flag_bits & 1:
            raise source.refused(f"'{name}' is encrypted", "save it without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise source.refused(f"'{name}' is compressed by an unknown method ({info.compress_type})")
    if len({info.filename for info in found}) < len(found):
        raise source.refused("two of its members have the same name")
    return found


def _open_archive(source: Source, file: IO[bytes]) -> dict[str, StoredArray]:
    found = {}
    with source.guarded(NO_ARCHIVE):
        infos = members(source, file)
        with zipfile.ZipFile(file) as content:
            for info in infos:
                name = info.filename.removesuffix(".npy")
                try:
                    with source.guarded(NO_ARCHIVE), content.open(info) as member:
                        layout = _layout(source, name, member, info.file_size)
                except FileError as error:
                    layout = error
                found[name] = StoredArray(source, name, layout, info)
    return found


def _layout(source: Source, name: str, file: IO[bytes], size: int) -> Layout:
    """Return what the header that comes next says; it must fit the `size` bytes of the file."""
    start = file.read(8)
    width = {b"\x01": 2, b"\x02": 4}.get(start[6:7])
    if not start.startswith(MAGIC) or width is None:
        raise source.refused(f"'{name}' is not an array of NumPy in format 1 or 2", "write it with numpy.save")
    raw = file.read(width)
    length = int.from_bytes(raw, "little")
    header = file.read(length) if len(raw) == width and length <= LARGEST_HEADER[".npy"] else b""
    fields = _fields(header)
    if len(header) != length or fields is None:
        words = "holds records" if b"[" in header else "has a damaged header"
        raise source.refused(f"'{name}' {words}", "save it as an array of numbers")
    kind, by_columns, shape = fields
    try:
        dtype = np.dtype(kind)
    except (TypeError, ValueError):
        raise source.refused(f"'{name}' holds values of an unknown type {kind!r}") from None
    offset = 8 + width + length
    if len(shape) > MOST_AXES or math.prod(n for n in shape if n) * max(dtype.itemsize, 1) >= 2**62:
        raise source.refused(f"'{name}' cannot have the shape {shape[:MOST_AXES]}")
    needed = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and needed != size - offset:
        raise source.refused(f"'{name}' of shape {shape} needs {needed:,} bytes, but {size - offset:,} follow")
    return Layout(shape, kind, dtype.newbyteorder("="), offset, by_columns)


def _fields(header: bytes) -> tuple[str, bool, tuple[int, ...]] | None:
    """Return type, order and shape of the header of an array, or `None`. Nothing of it is evaluated."""
    text = b"".join(header.split())
    found: dict[bytes, re.Match[bytes]] = {}
    place = 1
    while field := FIELD.match(text, place):
        place = field.end()
        if field[2] in found:
            return None
        found[field[2]] = field
    if text[:1] != b"{" or text[place:] != b"}" or len(found) != 3:
        return None
    kind, flag, shape = found[b"descr"]["kind"], found[b"fortran_order"]["flag"], found[b"shape"]["shape"]
    if kind is None or flag is None or shape is None:
        return None
    sizes = tuple(int(part.rstrip(b"L")) for part in shape.split(b",") if part)
    return kind.decode(), flag == b"True", sizes


# ---- safetensors -----------------------------------------------------------------------------------------------------


def _open_safetensors(source: Source) -> dict[str, StoredArray]:
    """Return the arrays of a safetensors file, in the order of its header.

    Eight bytes with the length of the header, the header as JSON, then the numbers, little-endian and row by row.
    """
    size = source.size
    if size < 8:
        raise source.refused(f"it has {size} bytes, too few for a safetensors file")
    with source.opened() as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(LARGEST_HEADER[".safetensors"], size - 8):
            raise source.refused(f"its header would have {length:,} bytes, and the file has {size:,}")
        raw = file.read(length)
    header = parse_json(source, raw)
    if not isinstance(header, dict):
        raise source.refused("its header is no JSON object")
    body = 8 + length
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            try:
                layout = _tensor(source, name, entry, body, size)
            except FileError as error:
                layout = error
            found[name] = StoredArray(source, name, layout)
    return found


def _tensor(source: Source, name: str, entry: Any, body: int, size: int) -> Layout:
    """Return type, shape and place of an array, compared with each other and with the file."""
    try:
        kind, shape, (begin, end) = str(entry["dtype"]), entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise source.refused(f"the entry '{name}' lacks dtype, shape or data_offsets") from None
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise source.refused(f"shape and data_offsets of '{name}' are not lists of whole numbers")
    if len(shape) > MOST_AXES or math.prod(n for n in shape if n) >= 2**59:
        raise source.refused(f"'{name}' cannot have the shape {tuple(shape[:MOST_AXES])}")
    if not begin <= end <= size - body:
        raise source.refused(f"the bytes {begin} to {end} of '{name}' do not fit the file")
    if kind not in FLOATS:
        return Layout(tuple(shape), kind, np.dtype(object), body + begin)
    if end - begin != math.prod(shape) * np.dtype(FLOATS[kind]).itemsize:
        raise source.refused(f"the bytes {begin} to {end} of '{name}' do not fit its shape {tuple(shape)}")
    return Layout(tuple(shape), kind, np.dtype(float), body + begin)
