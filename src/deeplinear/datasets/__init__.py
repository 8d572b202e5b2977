"""Real data for examples, read from files that other packages ship; nothing is fetched and nothing is copied here."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.datasets._images import (
        cifar as cifar,
        clusters as clusters,
        digits as digits,
        fashion_mnist as fashion_mnist,
        mnist as mnist,
    )
    from deeplinear.datasets._load import (
        SOURCES as SOURCES,
        Ratings as Ratings,
        Robot as Robot,
        Table as Table,
        camera as camera,
        expression as expression,
        fertility as fertility,
        movielens as movielens,
        robot as robot,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
