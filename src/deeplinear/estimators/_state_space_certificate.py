"""What the theorems on extrapolation say about an identified system."""

from typing import NamedTuple

import numpy as np

from deeplinear.core import HypothesisError
from deeplinear.recurrent import (
    Continuation,
    ExtrapolationVerdict,
    certificate,
    continuation,
    extrapolation_interval,
    extrapolation_verdict,
)

RICHEST = 1e9
"""Sizes of responses from which on numbers are not worth a bound."""


class StateSpaceCertificate(NamedTuple):
    r"""How far other balanced systems with the same first entries can be from an identified one.

    The theorems speak of balanced systems with one input and one output: those with a positive spectral measure, as
    with $A = A^\top$, $C = B^\top$. They bound the distance of such systems that share the first $k \ge 2n + 1$ entries
    of $CA^jB$; they do not bound the distance to what made the data, of which only noisy entries are known.

    Attributes:
        applies: Whether the identified system is one they speak of.
        reason: Why not; empty if it is.
        known: $k$, lags that the network was trained on.
        horizon: $H$, where the response ends.
        response: $CA^jB$ of the identified system, $j < H$; `None` if there are several inputs or outputs.
        constants: $K_j$: a balanced system whose first $k$ entries differ by residuals $r$ is off by at most
            $K_j\|r\|$ at entry $j$. `None` if they do not apply.
        continuation: What the first $k$ entries of the identified system determine; `None` where it cannot be said.
        verdict: The over-parameterised network judged against the identified system: conditions with their residuals.
            `None` where it cannot be said.
    """

    applies: bool
    reason: str
    known: int
    horizon: int
    response: np.ndarray | None
    constants: np.ndarray | None
    continuation: Continuation | None
    verdict: ExtrapolationVerdict | None

    def __repr__(self) -> str:
        if not self.applies:
            return f"StateSpaceCertificate(applies=False: {self.reason})"
        constants = self.constants
        last = "" if constants is None else f", K at {self.horizon - 1}: {constants[-1]:.3g}"
        return f"StateSpaceCertificate(applies=True, known={self.known}{last})"

    def bounds(self, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest entries of balanced systems whose first entries are those of the identified one.

        Args:
            accuracy: By how much each of the known entries may be off, in units of the response.

        Returns:
            One number for each entry up to the horizon; two linear programmes for each beyond the known ones.

        Raises:
            ValueError: The certificate does not apply, or a programme could not be solved.
        """
        found = self.continuation
        if not self.applies or found is None or found.measure is None or self.response is None:
            raise ValueError(f"StateSpaceCertificate.bounds: the certificate does not apply: {self.reason}.")
        atoms = np.asarray(found.measure.atoms)
        reach = max(1.0, float(np.abs(atoms).max()))
        low, high = self.response - accuracy, self.response + accuracy
        for index in range(self.known, self.horizon):
            interval = extrapolation_interval(
                self.response[: self.known], index, low=-reach, high=reach, atoms=atoms, tolerance=accuracy
            )
            low[index] = min(float(interval.lower) - interval.error, self.response[index])
            high[index] = max(float(interval.upper) + interval.error, self.response[index])
        return low, high


def certified(
    system: tuple[np.ndarray, np.ndarray, np.ndarray],
    network: tuple[np.ndarray, np.ndarray, np.ndarray],
    response: np.ndarray,
    known: int,
    horizon: int,
) -> StateSpaceCertificate:
    """The certificate of a system, beside the verdict on the network it came from.

    Args:
        system: $A$, $B$, $C$ as identified.
        network: The over-parameterised network.
        response: $CA^jB$ of the system up to the horizon.
        known: Lags trained on.
        horizon: Where the response ends.
    """

    def silent(reason: str, values: np.ndarray | None = None) -> StateSpaceCertificate:
        return StateSpaceCertificate(False, reason, known, horizon, values, None, None, None)

    if response.shape[1:] != (1, 1):
        return silent(
            "it needs one input and one output, but there are "
            f"{response.shape[2]} {'input' if response.shape[2] == 1 else 'inputs'} and {response.shape[1]} "
            f"{'output' if response.shape[1] == 1 else 'outputs'}"
        )
    values = response[:, 0, 0]
    if len(system[0]) == 0 or not np.any(values):
        return silent("the response vanishes: the system has no memory", values)
    if not np.abs(values).max() < RICHEST * np.abs(values[:known]).max():
        return silent("the response grows too fast up to the horizon", values)
    try:
        found = continuation(values[:known], horizon, between=False)
        judged = extrapolation_verdict(network, values, known, horizon=horizon)
    except (HypothesisError, ValueError) as error:
        return silent(str(error).rstrip("."), values)
    if found.measure is None:
        reason = "the identified system is not balanced (its Hankel matrix is not positive)"
        return StateSpaceCertificate(False, reason, known, horizon, values, None, found, judged)
    atoms = np.asarray(found.measure.atoms)
    try:
        constants = np.asarray(
            certificate(atoms, known, horizon, radius=max(1.0, float(np.abs(atoms).max()))).constants
        )
    except (HypothesisError, ValueError) as error:
        return StateSpaceCertificate(False, str(error).rstrip("."), known, horizon, values, None, found, judged)
    return StateSpaceCertificate(True, "", known, horizon, values, constants, found, judged)
