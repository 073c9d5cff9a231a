"""The libraries of the extra ``callboard[spark]``."""

from __future__ import annotations

from importlib import import_module

LIBRARIES = ("numpy", "pyarrow", "pyspark")


def require_extra() -> None:
    """Import the libraries. Raises ModuleNotFoundError with the command that installs them."""
    for library in LIBRARIES:
        try:
            import_module(library)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != library:
                raise
            raise ModuleNotFoundError(
                f"callboard.spark needs {library}, which is not installed; install it with:"
                " pip install 'callboard[spark]'",
                name=library,
            ) from error
