"""One SecAgg round with Flower's own primitives, all parties in one process; run by `benchmarks.exchange --flower`.

Needs flwr and numpy only, so that it can run in another environment. Prints one JSON line per N: processor seconds of
the whole round (all clients and the server one after the other) and bytes that a client sends to the server.
"""

import json
import os
import sys
import time

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)

CLIP, TARGET, MODULUS = 8.0, 1 << 22, 1 << 32


def one_round(values: np.ndarray, threshold: int) -> tuple[np.ndarray, int]:
    """The sum by masks and self-masks over the complete graph, and the bytes that one client sends."""
    n, d = values.shape
    mask_keys, box_keys = ([ec.generate_private_key(ec.SECP384R1()) for _ in range(n)] for _ in range(2))
    seeds = [os.urandom(32) for _ in range(n)]
    raw = lambda key: key.private_bytes(  # noqa: E731
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    others = [[j for j in range(n) if j != i] for i in range(n)]
    boxes = [{j: generate_shared_key(box_keys[i], box_keys[j].public_key()) for j in others[i]} for i in range(n)]
    sent, letters = 0, {}
    for i in range(n):
        b_shares, k_shares = create_shares(seeds[i], threshold, n), create_shares(raw(mask_keys[i]), threshold, n)
        for j in range(n):
            if j != i:
                plain = share_keys_plaintext_concat(i, j, b_shares[j], k_shares[j])
                letters[i, j] = encrypt(boxes[i][j], plain)
                sent += len(letters[i, j]) * (i == 0)
        letters[i, i] = b_shares[i]
    held = {}
    for (i, j), letter in letters.items():
        held[i, j] = letter if i == j else share_keys_plaintext_separate(decrypt(boxes[j][i], letter))[2]
    total = np.zeros(d, np.int64)
    for i in range(n):
        masked = quantize([values[i]], CLIP, TARGET)[0].astype(np.int64) + pseudo_rand_gen(seeds[i], MODULUS, [(d,)])[0]
        for j in range(n):
            if j != i:
                key = generate_shared_key(mask_keys[i], mask_keys[j].public_key())
                masked += (1 if i > j else -1) * pseudo_rand_gen(key, MODULUS, [(d,)])[0]
        total += masked % MODULUS
        sent += masked.nbytes * (i == 0)
    for i in range(n):
        seed = combine_shares([held[i, j] for j in range(threshold)])
        total -= pseudo_rand_gen(seed, MODULUS, [(d,)])[0]
    sent += sum(len(held[i, 0]) for i in range(n))
    whole = dequantize([total % MODULUS], CLIP, TARGET)[0] - (n - 1) * CLIP
    return whole, sent


if __name__ == "__main__":
    dimension, repeats, *counts = map(int, sys.argv[1:])
    for count in counts:
        inputs = np.random.default_rng(0).uniform(-1, 1, (count, dimension))
        times = []
        for _ in range(repeats):
            start = time.process_time()
            got, size = one_round(inputs, (count + 3) // 2)
            times.append(time.process_time() - start)
        assert np.abs(got - inputs.sum(0)).max() < count * 2 * CLIP / TARGET
        print(json.dumps({"parties": count, "seconds": min(times), "bytes": size}))
