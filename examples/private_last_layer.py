"""Features from a network that was trained in public, and a private last layer on them.

Run it: python examples/private_last_layer.py. Anybody's pictures (made here: bars on noise, at any angle) teach a small
convolutional network what a picture is. Four parties then learn a class of their own, of which each has 150 pictures,
from the network's features: only the last layer costs privacy, and it is small and convex.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import coterie as ct

SIDE, ANGLES = 12, 8
rng = np.random.default_rng(0)


def pictures(count):
    """Bars through the middle, and their angles in steps of 180°/8."""
    angle = rng.integers(0, ANGLES, count)
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    theta = np.pi * (angle + rng.uniform(-0.4, 0.4, count)) / ANGLES
    away = np.abs(np.cos(theta)[:, None, None] * y - np.sin(theta)[:, None, None] * x)
    return np.exp(-away) + rng.normal(0, 0.35, (count, SIDE, SIDE)), angle


class Net(eqx.Module):
    conv: eqx.nn.Conv2d
    dense: eqx.nn.Linear
    last: eqx.nn.Linear

    def features(self, x):
        seen = jnp.tanh(self.conv(x[None]))
        return jnp.tanh(self.dense(seen.ravel()))  # sixteen numbers from −1 to 1, whatever the picture

    def __call__(self, x):
        return self.last(self.features(x))


keys = jax.random.split(jax.random.key(0), 3)
net = Net(
    eqx.nn.Conv2d(1, 6, 5, stride=2, key=keys[0]),
    eqx.nn.Linear(96, 16, key=keys[1]),
    eqx.nn.Linear(16, ANGLES, key=keys[2]),
)

# In public: no privacy is spent on pictures that are anybody's.
public = pictures(4000)
params, rest = eqx.partition(net, eqx.is_array)


def public_loss(params, x, y):
    scores = jax.vmap(eqx.combine(params, rest))(x)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], axis=1))


@jax.jit
def step(params, speed, x, y):
    speed = jax.tree.map(lambda v, g: 0.9 * v - 0.1 * g, speed, jax.grad(public_loss)(params, x, y))
    return jax.tree.map(jnp.add, params, speed), speed


speed = jax.tree.map(jnp.zeros_like, params)
for _ in range(300):
    some = rng.integers(0, 4000, 128)
    params, speed = step(params, speed, jnp.asarray(public[0][some], jnp.float32), jnp.asarray(public[1][some]))
net = eqx.combine(params, rest)

# In private: is the bar more upright than flat? Four parties, 150 pictures each.
x, angle = pictures(5 * 150)
y = np.where((angle >= 3) & (angle <= 5), "upright", "flat")
features = np.asarray(jax.vmap(net.features)(jnp.asarray(x, jnp.float32)))
sites = list(zip(features.reshape(5, 150, -1), y.reshape(5, 150), strict=True))
task = ct.logistic(classes=["flat", "upright"])
run = ct.train(task, ct.ring(sites[:4], bounds=(-1, 1)), budget=ct.Budget(1.0, 1e-5), seed=0)
print(f"ε = {run.epsilon:.3f} for {run.point.size} parameters, accuracy {run.score(*sites[4]):.3f}")
