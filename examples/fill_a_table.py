"""Fill the gaps of a table, and see which rows cannot be known.

An estimator in the manner of scikit-learn: it holds entries out, follows gradient flow of a deep network from a small
start, and stops where the entries held out are predicted best.
"""

import numpy as np

from deeplinear.estimators import DeepMatrixCompletion
from deeplinear.plots import plot_completion

# %% A table of rank two after its mean; 40 per cent are missing, and of row 7 everything.
rng = np.random.default_rng(0)
truth = 3 + rng.standard_normal((30, 2)) @ rng.standard_normal((2, 28))
seen = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
seen[7] = np.nan

# %% Fit, fill, and ask what the pattern of gaps can say.
fit = DeepMatrixCompletion(depth=3, random_state=0)
filled = fit.fit_transform(seen)
known = np.arange(30) != 7
print(f"held out {fit.held_out_error_:.2g}, largest error {np.abs(filled - truth)[known].max():.2g}")
print(f"row 7, of which nothing is known: error {np.abs(filled - truth)[7].max():.2g}")
print(fit.mask_report_)

# %% Errors and rank on the way, singular values, the table before and after.
figure = plot_completion(fit, seen, filled, title="A table with gaps")
figure.savefig("fill_a_table.png")
