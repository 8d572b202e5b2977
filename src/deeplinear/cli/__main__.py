"""`python -m deeplinear.cli` is `dln`."""

from deeplinear.cli._main import main

main()
