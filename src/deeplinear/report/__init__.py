"""Figures and progress bars made from trajectories and runs."""

from deeplinear.report._plots import plot_trajectory as plot_trajectory, save_figure as save_figure
from deeplinear.report._progress import progress_bar as progress_bar
from deeplinear.report._style import COLOURS as COLOURS, paper_style as paper_style
