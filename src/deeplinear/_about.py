"""What every layer may know: the version, and how 64-bit numbers are switched on. Imports nothing."""

__version__ = "0.2.0"


def use_64_bit() -> None:
    """Switch JAX to 64-bit numbers, for this process; call it at the start of a program, before anything is computed.

    The package never does so by itself. The command line and the workers of an experiment call it.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
