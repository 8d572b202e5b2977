"""The command `dln`."""

from deeplinear.cli._main import main as main
