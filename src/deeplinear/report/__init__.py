"""Reports of stored results, and progress bars."""

from deeplinear.report._html import build_report as build_report
from deeplinear.report._progress import (
    progress_bar as progress_bar,
    state_bar as state_bar,
    sweep_bar as sweep_bar,
)
