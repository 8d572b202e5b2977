"""Pictures: one style, plots of trajectories, files of figures. Matplotlib is loaded when a figure is made.

Figures are not registered with pyplot: `save_figure` writes one to files, `plt.figure(figure)` before `plt.show()`
opens it in a window.
"""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.plots._completion import plot_completion as plot_completion
    from deeplinear.plots._continuation import plot_continuation as plot_continuation
    from deeplinear.plots._geodesic import plot_geodesic as plot_geodesic
    from deeplinear.plots._identification import plot_identification as plot_identification
    from deeplinear.plots._landscape import (
        draw_arc as draw_arc,
        draw_critical_graph as draw_critical_graph,
        graph_width as graph_width,
        plot_arcs as plot_arcs,
        plot_critical_graph as plot_critical_graph,
    )
    from deeplinear.plots._portrait import plot_portrait as plot_portrait
    from deeplinear.plots._recurrent import (
        plot_hankel as plot_hankel,
        plot_measure as plot_measure,
        plot_residual_polynomial as plot_residual_polynomial,
        plot_responses as plot_responses,
    )
    from deeplinear.plots._style import COLOURS as COLOURS, PANEL as PANEL, REST as REST, paper_style as paper_style
    from deeplinear.plots._trajectory import plot_trajectory as plot_trajectory, save_figure as save_figure
    from deeplinear.plots._visits import draw_itinerary as draw_itinerary, plot_itinerary as plot_itinerary
else:
    __getattr__, __dir__, __all__ = attach(__name__)
