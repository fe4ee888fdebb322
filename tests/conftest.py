"""Tests compile the same small programs again and again: keep them for the length of a run, workers included."""

import tempfile
from pathlib import Path

import jax

jax.config.update(
    "jax_compilation_cache_dir", str(Path(tempfile.gettempdir()) / f"coterie-tests-jax-{jax.__version__}")
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
