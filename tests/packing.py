"""Messages of the quantized family as bytes: they need no more bits than the algorithms count."""

from __future__ import annotations

import struct

import numpy as np

_HEADER = struct.Struct("<BI")  # width of a number in bits, how many numbers


def pack_integers(whole: np.ndarray, bits: int) -> bytes:
    """Whole numbers in −2^{bits−1} … 2^{bits−1} − 1 as `bits` bits each, low bit first, after a 5-byte header.

    >>> data = pack_integers(np.array([-4, 3, 0]), 3)
    >>> len(data), unpack_integers(data).tolist()
    (7, [-4, 3, 0])
    """
    if not 1 <= bits <= 64:
        raise ValueError(f"bits must be in 1..64, got {bits}")
    values = np.asarray(np.rint(whole), np.int64)
    half = 1 << (bits - 1)
    if values.size and (values.min() < -half or values.max() >= half):
        raise ValueError(f"numbers from {values.min()} to {values.max()} do not fit {bits} bits")
    table = (values[:, None] >> np.arange(bits)) & 1  # two's complement
    return _HEADER.pack(bits, values.size) + np.packbits(table.astype(np.uint8), bitorder="little").tobytes()


def unpack_integers(data: bytes) -> np.ndarray:
    """What `pack_integers` packed, as int64."""
    bits, count = _HEADER.unpack_from(data)
    flat = np.unpackbits(_body(data, bits * count), count=bits * count, bitorder="little").reshape(count, bits)
    weights = 1 << np.arange(bits, dtype=np.int64)
    weights[-1] = -weights[-1] if bits < 64 else weights[-1]
    return flat.astype(np.int64) @ weights


def pack_sparse(values: np.ndarray) -> bytes:
    """A vector with many zeros: where the others are (bitmap, or list of places if shorter), then they, as floats.

    >>> unpack_sparse(pack_sparse(np.array([0.0, 2.5, 0.0, 0.0]))).tolist()
    [0.0, 2.5, 0.0, 0.0]
    """
    values = np.asarray(values)
    places, dim = np.flatnonzero(values), values.size
    width = _place_bits(dim)
    if len(places) * width < dim:
        bits = ((places[:, None] >> np.arange(width)) & 1).astype(np.uint8).ravel()
    else:
        bits = (values != 0).astype(np.uint8)
    body = np.packbits(bits, bitorder="little").tobytes() + values[places].tobytes()
    return _HEADER.pack(values.dtype.itemsize, dim) + struct.pack("<I", len(places)) + body


def unpack_sparse(data: bytes) -> np.ndarray:
    """What `pack_sparse` packed."""
    size, dim = _HEADER.unpack_from(data)
    (kept,) = struct.unpack_from("<I", data, _HEADER.size)
    width, rest = _place_bits(dim), data[_HEADER.size + 4 :]
    as_list = kept * width < dim
    used = kept * width if as_list else dim
    flat = np.unpackbits(np.frombuffer(rest, np.uint8, -(-used // 8)), count=used, bitorder="little")
    places = flat.reshape(kept, width).astype(np.int64) @ (1 << np.arange(width)) if as_list else np.flatnonzero(flat)
    out = np.zeros(dim, {4: np.float32, 8: np.float64}[size])
    out[places] = np.frombuffer(rest, out.dtype, kept, -(-used // 8))
    return out


def pack_message(z: np.ndarray, size: float, step: float, bits: int) -> bytes:
    """The message as bytes: batch size, then z as whole numbers of grid steps."""
    return struct.pack("<I", int(size)) + pack_integers(np.rint(np.asarray(z, float) / step), bits)


def unpack_message(data: bytes, step: float) -> tuple[np.ndarray, float]:
    """(z, batch size)."""
    return step * unpack_integers(data[4:]), float(struct.unpack_from("<I", data)[0])


def _place_bits(dim: int) -> int:
    return max(1, (dim - 1).bit_length())


def _body(data: bytes, bits: int) -> np.ndarray:
    need = _HEADER.size + -(-bits // 8)
    if len(data) != need:
        raise ValueError(f"a packed message of {bits} bits has {need} bytes, got {len(data)}")
    return np.frombuffer(data, np.uint8, offset=_HEADER.size)
