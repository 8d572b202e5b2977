"""The ground: annotations, errors, linear algebra, integrators, trajectories."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear._about import (
        near_name as near_name,
    )
    from deeplinear.core import (
        random as random,
    )
    from deeplinear.core._arrays import (
        as_array as as_array,
    )
    from deeplinear.core._decompositions import (
        are_tied as are_tied,
        full_svd as full_svd,
        polar as polar,
        refused_derivative as refused_derivative,
    )
    from deeplinear.core._describe import (
        describe as describe,
    )
    from deeplinear.core._entry import (
        TracedError as TracedError,
        concrete as concrete,
        entry as entry,
        forward_only as forward_only,
        no_gradient as no_gradient,
    )
    from deeplinear.core._errors import (
        RESULTS as RESULTS,
        HypothesisError as HypothesisError,
        NumericalError as NumericalError,
        check_count as check_count,
        check_finite as check_finite,
        check_key as check_key,
        check_number as check_number,
        check_result as check_result,
        check_shape as check_shape,
        check_size as check_size,
        check_x64 as check_x64,
        is_concrete as is_concrete,
        within_run as within_run,
    )
    from deeplinear.core._exponential import (
        Exponential as Exponential,
        phi as phi,
    )
    from deeplinear.core._files import (
        replacing as replacing,
    )
    from deeplinear.core._integrate import (
        Integral as Integral,
        integrate as integrate,
    )
    from deeplinear.core._layers import (
        checked_layer as checked_layer,
        checked_params as checked_params,
    )
    from deeplinear.core._linalg import (
        add_scaled as add_scaled,
        flatten as flatten,
        frobenius as frobenius,
        inner as inner,
        norm as norm,
        random_orthogonal as random_orthogonal,
        spectrum as spectrum,
        svd as svd,
        unflatten as unflatten,
    )
    from deeplinear.core._machine import (
        SHARE as SHARE,
        drop_programs as drop_programs,
        make_room as make_room,
        one_at_a_time as one_at_a_time,
        processors as processors,
        resident_memory as resident_memory,
    )
    from deeplinear.core._ode import (
        AbstractField as AbstractField,
        AbstractIntegrator as AbstractIntegrator,
        Implicit as Implicit,
        RungeKutta as RungeKutta,
        Step as Step,
        Tableau as Tableau,
        dopri8 as dopri8,
        kvaerno5 as kvaerno5,
        tableau as tableau,
        tsit5 as tsit5,
    )
    from deeplinear.core._ranks import (
        effective_rank as effective_rank,
        nuclear_norm as nuclear_norm,
        numerical_rank as numerical_rank,
        spectrum_effective_rank as spectrum_effective_rank,
        spectrum_stable_rank as spectrum_stable_rank,
        stable_rank as stable_rank,
    )
    from deeplinear.core._stabilised import (
        ROUNDING as ROUNDING,
        Stabilised as Stabilised,
        stabilised_table as stabilised_table,
    )
    from deeplinear.core._trajectory import (
        Trajectory as Trajectory,
    )
    from deeplinear.core._trajectory_file import (
        netcdf_bytes as netcdf_bytes,
    )
    from deeplinear.core._types import (
        Array as Array,
        Matrix as Matrix,
        Params as Params,
        RandomKey as RandomKey,
        Stack as Stack,
    )
    from deeplinear.core._xp import (
        add_at as add_at,
        as_numbers as as_numbers,
        cond as cond,
        differentiable as differentiable,
        entries as entries,
        fori_loop as fori_loop,
        formula as formula,
        is_program as is_program,
        over as over,
        put as put,
        quietly as quietly,
        scan as scan,
        special as special,
        splinalg as splinalg,
        stop_gradient as stop_gradient,
        while_loop as while_loop,
        xp as xp,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
