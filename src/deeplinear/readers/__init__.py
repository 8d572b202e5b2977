"""Readers of files from elsewhere: every size and header is checked before it is used, and nothing in a file is run."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.readers._arrays import (
        MOST_NUMBERS as MOST_NUMBERS,
        StoredArray as StoredArray,
        check_together as check_together,
        open_arrays as open_arrays,
        read_arrays as read_arrays,
    )
    from deeplinear.readers._documents import check_depth as check_depth, read_json as read_json, read_toml as read_toml
    from deeplinear.readers._images import read_idx as read_idx, read_records as read_records
    from deeplinear.readers._netcdf import (
        Content as Content,
        load_content as load_content,
        sealed as sealed,
        unsealed as unsealed,
    )
    from deeplinear.readers._pickles import read_pickle as read_pickle
    from deeplinear.readers._source import (
        FileError as FileError,
        MissingFile as MissingFile,
        Source as Source,
        one_line as one_line,
    )
    from deeplinear.readers._torch import read_torch as read_torch
else:
    __getattr__, __dir__, __all__ = attach(__name__)
