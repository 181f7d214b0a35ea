"""The cells of the planted chapter that trains with the library's own loop, each under a line `# %% id`.

It is checked against the library that the book's chapters save; nothing imports this module. The last two cells print a
digest for every iteration, so that the first one that differs can be named.
"""

# ruff: noqa: E402 (each cell imports what it needs, as in a chapter)

# %% settings
ITERATIONS, TASKS, WARM_START = 20, None, 100  # written anew for the short form

# %% digest
import hashlib

import torch

import agentrl as arl


def digest(tensors: list[torch.Tensor]) -> str:
    """Return a SHA-256 over every bit of the tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


# %% train
tokenizer, tasks = arl.gym_tokenizer(), arl.split_tasks(arl.bugfix_tasks()).train
agent = arl.starting_agent(tokenizer, tasks, seed=0, batches=WARM_START)
token_digests, weight_digests = [], [digest(list(agent.parameters()))]


def graded(batch: arl.TrajectoryBatch) -> torch.Tensor:
    """Return the rewards as they are, and keep a digest of the sampled tokens."""
    token_digests.append(digest([batch.ids]))
    return batch.rewards


def keep_digest(state: arl.TrainState) -> None:
    """Keep a digest of the weights."""
    weight_digests.append(digest(list(state.model.parameters())))


config = arl.TrainConfig(iterations=ITERATIONS, tasks_per_iteration=TASKS)
history = arl.train(agent, tokenizer, tasks, config, rewards=graded, callback=keep_digest)

# %% returns
print(history.table("iteration", "success", "entropy", "approx_kl"))

# %% tokens
for number, text in enumerate(token_digests, start=1):
    print(f"iteration {number}: {text}")

# %% weights
for number, text in enumerate(weight_digests):
    print(f"iteration {number}: {text}")
