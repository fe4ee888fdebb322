"""A neural network written with Equinox, trained privately by four parties that never show a record.

Run it: python examples/equinox_network.py. The labels are rings around the origin, which no linear model can tell
apart. Every record's gradient is clipped and every message is noised: nothing else has to be known about the network.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import coterie as ct

rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (4, 3000, 2))  # four parties, 3,000 records each
y = (np.linalg.norm(x, axis=2) > 0.75).astype(int)

network = eqx.nn.MLP(in_size=2, out_size=2, width_size=16, depth=1, activation=jnp.tanh, key=jax.random.key(0))
wide = eqx.nn.Sequential([eqx.nn.Lambda(lambda x: 3 * x), network])

task = ct.neural(wide, classes=2)
sites = list(zip(x[:, 600:], y[:, 600:], strict=True))
held_out = np.concatenate(x[:, :600]), np.concatenate(y[:, :600])
run = ct.train(task, ct.complete(sites), ct.dp_dsgd(step=2.0), ct.Budget(2.0, 1e-5), seed=0)

again = np.argmax(jax.vmap(run.model)(held_out[0]), axis=1)  # the network, to use as any other
assert np.array_equal(run.predict(held_out[0]), again)
print(f"ε = {run.epsilon:.3f} for {run.point.size} parameters, accuracy {run.score(*held_out):.3f}")
