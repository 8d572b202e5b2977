"""`python -m deeplinear.cli` is `dln`."""

from deeplinear.cli._entry import main

main()
