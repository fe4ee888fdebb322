"""A loss of your own, trained privately by five parties: logistic regression that forgives mislabelled records.

Run it: python examples/custom_loss.py. One label in five is wrong. The loss is the logistic one with a cap, so that a
record that contradicts the model badly pulls no more; it is not convex, and no package has it built in.
"""

import jax.numpy as jnp
import numpy as np

import coterie as ct


def capped(params, x, y):
    """Loss of one record: y is −1 or 1."""
    plain = jnp.logaddexp(0.0, -y * (params["w"] @ x + params["b"]))
    return 3.0 * jnp.tanh(plain / 3.0)


rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (5, 1000, 4))  # five parties, 1,000 records each
truth = np.where(x @ [1.0, -2.0, 0.5, 0.0] > 0.3, 1.0, -1.0)
labels = np.where(rng.random(truth.shape) < 0.2, -truth, truth)

task = ct.loss(capped, {"w": jnp.zeros(4), "b": jnp.zeros(())})
parties = ct.ring(list(zip(x, labels, strict=True)))
run = ct.train(task, parties, ct.dp_dsgd(), ct.Budget(1.0, 1e-5), seed=0)

right = np.sign(x @ run.model["w"] + run.model["b"]) == truth
print(f"ε = {run.epsilon:.3f}, {run.rounds} rounds, agreement with the truth {right.mean():.3f}")
