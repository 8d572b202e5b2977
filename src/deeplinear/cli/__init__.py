"""The command `dln`."""

from deeplinear.cli._entry import main as main
