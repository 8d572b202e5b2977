"""State dicts of PyTorch, read by PyTorch 2.6 or newer after the archive has been looked at."""

import importlib
import pickle
import re
import warnings
import zipfile
from typing import Any

from deeplinear.readers._arrays import MOST_NUMBERS, members
from deeplinear.readers._source import BROKEN, Source, one_line

OLDEST = (2, 6)
"""Version of PyTorch whose `weights_only` holds; older ones run what a file names all the same (CVE-2025-32434)."""

LARGEST_PICKLE = 2**26
"""Bytes of the description of the tensors."""

MISSING = "install PyTorch (pip install torch), or save the weights as .safetensors or .npz"


def read_torch(source: Source) -> Any:
    """Return what a .pt or .pth file holds: tensors, and lists and dictionaries of them.

    Raises:
        ImportError: PyTorch is not installed.
        FileError: The file is damaged or holds other objects, or PyTorch is too old to read it safely.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise ImportError(
            f"{source.where}: PyTorch must be installed to read {source.name}, but is not; {MISSING}."
        ) from None
    version = str(getattr(torch, "__version__", "0"))
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        raise source.refused(
            f"PyTorch {version} may run programs that a file names",
            f"install PyTorch {'.'.join(map(str, OLDEST))} or newer, or save the weights as .safetensors or .npz",
        )
    fix = "save a state dict by torch.save(model.state_dict(), …)"
    with source.opened() as file:
        if not zipfile.is_zipfile(file):
            raise source.refused("it is not an archive of PyTorch 1.6 or newer", fix)
        infos = members(source, file)
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise source.refused(f"'{info.filename}' is compressed, which PyTorch never does", fix)
        if info.filename.endswith(".pkl") and info.file_size > LARGEST_PICKLE:
            raise source.refused(f"'{info.filename}' has {info.file_size:,} bytes, more than {LARGEST_PICKLE:,}", fix)
    if sum(info.file_size for info in infos) > min(source.size, 8 * MOST_NUMBERS):
        raise source.refused(f"it has more than {MOST_NUMBERS:,} numbers, or its members overlap", fix)
    try:
        with source.opened() as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of pickles that it then refuses
            return torch.load(file, map_location="cpu", weights_only=True)
    except (*BROKEN, pickle.UnpicklingError, RuntimeError, AttributeError, AssertionError) as error:
        if "Weights only" in str(error):
            raise source.refused("it holds Python objects, such as a whole model", fix) from None
        raise source.refused(one_line(error), fix) from None
