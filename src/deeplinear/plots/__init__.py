"""Pictures: one style, plots of trajectories, files of figures. Matplotlib is loaded when a figure is made."""

from deeplinear.plots._style import COLOURS as COLOURS, PANEL as PANEL, REST as REST, paper_style as paper_style
from deeplinear.plots._trajectory import plot_trajectory as plot_trajectory, save_figure as save_figure
