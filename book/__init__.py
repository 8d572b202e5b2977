"""How the book in `docs/` is made: pages that run, pages that are generated, formulas, notebooks of the examples."""
