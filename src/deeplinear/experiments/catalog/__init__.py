"""The experiments of the papers, one folder for each paper."""
