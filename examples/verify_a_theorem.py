"""Verify a theorem on random instances, and watch it fail where it must.

A check holds a statement with its hypotheses and a tolerance. It is measured on random instances, and on planted
violations that it has to catch. Some statements do not hold as printed: then both forms are measured.
"""

import jax
import matplotlib.pyplot as plt

jax.config.update("jax_enable_x64", True)
from deeplinear.theory import check, verify

# %% One statement that holds, and one that does not hold as printed.
names = (
    "network/proposition-18",
    "completion/lemmas-d1-d2-d5",
    "completion/erratum-lemma-e9",
    "exact/erratum-weight-noise",
)
outcomes = [verify(check(name), instances=20) for name in names]
for outcome in outcomes:
    print(f"{outcome.check.id}: {outcome.status.value}. {outcome.message}")
    for trial in outcome.trials:
        print(f"    violation {'caught' if trial.caught else 'missed'}: {trial.name}")

# %% How far below its tolerance each claim stays, and the printed forms where they are others.
figure, axis = plt.subplots(figsize=(7.0, 2.6), layout="constrained")
for place, outcome in enumerate(outcomes):
    for reading in outcome.claim:
        axis.plot(max(reading.residual, 1e-17), place, "o", color="C0")
        axis.plot(max(reading.tolerance, 1e-17), place, "|", color="k", markersize=14)
    if outcome.printed is not None:
        axis.plot(max(outcome.printed.residual, 1e-17), place, "x", color="C1")
axis.set(
    xscale="log", yticks=range(len(names)), yticklabels=names, xlabel="residual (o), tolerance (|), printed form (x)"
)
axis.set(title="Theorems, measured", ylim=(-0.5, len(names) - 0.5))
figure.savefig("verify_a_theorem.png")
