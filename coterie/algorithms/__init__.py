"""Every algorithm, one file each, found by walking this package; `base` says what an algorithm is."""
