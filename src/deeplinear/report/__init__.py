"""Reports of stored results, and progress bars."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.report._content import (
        Content as Content,
        Recipe as Recipe,
        check_command as check_command,
        paper_of as paper_of,
        read_store as read_store,
        recipe_of as recipe_of,
        seconds_of as seconds_of,
        started_of as started_of,
        status_of as status_of,
    )
    from deeplinear.report._html import build_report as build_report
    from deeplinear.report._progress import (
        progress_bar as progress_bar,
        state_bar as state_bar,
        sweep_bar as sweep_bar,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
