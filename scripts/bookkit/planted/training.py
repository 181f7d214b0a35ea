"""The cells of the planted training chapter, each under a line `# %% id`; nothing imports this module.

A small causal transformer learns by policy gradient to write six digits in reverse order. The loop has the parts of
the book's own (several clipped updates from each batch, Adam) and follows the editorial guide's rules on numbers. The
last two cells print a digest for every iteration, so that the first one that differs can be named.
"""

# ruff: noqa: E402 (each cell imports what it needs, as in a chapter)

# %% settings
ARITHMETIC, ITERATIONS = "snapped", 60  # written anew for each variant: snapped, float64 or float32

# %% sizes
import hashlib
import math

import torch

DIGITS, PROMPT, LENGTH, WIDTH, HEADS, LAYERS = 10, 6, 12, 64, 4, 2
GROUP, BATCH, EPOCHS, MINIBATCHES, LEARNING_RATE, CLIP, GRID = 8, 128, 2, 2, 2e-3, 0.2, 2**16
DTYPE = torch.float32 if ARITHMETIC == "float32" else torch.float64


# %% initial-weights
def uniform(rows: int, columns: int, bound: float, generator: torch.Generator) -> torch.Tensor:
    """Return weights drawn in float64 between -bound and bound, in the type of this run."""
    drawn = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
    return ((drawn * 2 - 1) * bound).to(DTYPE).requires_grad_()


def initial_weights(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return the weights of the policy by name."""
    unit = math.sqrt(3 / WIDTH)
    shapes = {"token": (DIGITS, WIDTH, 0.5), "position": (LENGTH, WIDTH, 0.1), "head": (WIDTH, DIGITS, unit / 2)}
    for layer in range(LAYERS):
        shapes[f"qkv{layer}"] = (WIDTH, 3 * WIDTH, unit)
        shapes[f"out{layer}"] = (WIDTH, WIDTH, unit / 2)
        shapes[f"up{layer}"] = (WIDTH, 4 * WIDTH, unit)
        shapes[f"down{layer}"] = (4 * WIDTH, WIDTH, unit / 4)
    return {name: uniform(*shape, generator) for name, shape in shapes.items()}


# %% policy
Weights = dict[str, torch.Tensor]


def norm(x: torch.Tensor) -> torch.Tensor:
    """Return x divided by its root mean square over the last dimension."""
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def logits(weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits of the next digit at every position, `[B, T, digits]`."""
    rows, length = ids.shape
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    x = weights["token"][ids] + weights["position"][:length]
    for layer in range(LAYERS):
        q, k, v = (norm(x) @ weights[f"qkv{layer}"]).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(later, -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH)
        x = x + mixed @ weights[f"out{layer}"]
        x = x + (norm(x) @ weights[f"up{layer}"]).relu() @ weights[f"down{layer}"]
    return norm(x) @ weights["head"]


def answer_logprobs(weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of the digits after the prompt, `[B, T - prompt]`."""
    before = logits(weights, ids)[:, PROMPT - 1 : -1].log_softmax(-1)
    return before.gather(-1, ids[:, PROMPT:, None])[..., 0]


# %% sampling
@torch.no_grad()
def sample(weights: Weights, prompts: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the prompts followed by sampled digits, each drawn by inverse CDF from a float64 uniform."""
    ids = prompts
    while ids.shape[1] < LENGTH:
        cumulative = logits(weights, ids)[:, -1].double().softmax(-1).cumsum(-1)
        drawn = torch.rand(len(ids), 1, generator=generator, dtype=torch.float64)
        ids = torch.cat([ids, (cumulative <= drawn).sum(-1, keepdim=True).clamp(max=DIGITS - 1)], 1)
    return ids


def returns_of(ids: torch.Tensor) -> torch.Tensor:
    """Return how many digits of each answer are the prompt's in reverse, whole numbers `[B]`."""
    return (ids[:, PROMPT:] == ids[:, :PROMPT].flip(1)).sum(1)


def advantages_of(returns: torch.Tensor) -> torch.Tensor:
    """Return each return's distance from its group's mean in standard deviations, `[B, 1]`; 0 where all agree."""
    groups = returns.view(-1, GROUP).to(DTYPE)
    agree = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)
    deviation = torch.where(agree, 1.0, groups.std(1, keepdim=True))
    return ((groups - groups.mean(1, keepdim=True)) / deviation).view(-1, 1)


# %% update
@torch.no_grad()
def snap(weights: Weights) -> None:
    """Round every weight in place to the nearest multiple of 1 / GRID."""
    for weight in weights.values():
        weight.copy_((weight * GRID).round() / GRID)


def update(weights: Weights, adam: torch.optim.Adam, ids: torch.Tensor, generator: torch.Generator) -> None:
    """Take several clipped steps from one batch of sampled answers."""
    advantages = advantages_of(returns_of(ids))
    old = answer_logprobs(weights, ids).detach()
    for _ in range(EPOCHS):
        for rows in torch.randperm(BATCH, generator=generator).chunk(MINIBATCHES):
            ratio = (answer_logprobs(weights, ids[rows]) - old[rows]).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.minimum(ratio * advantages[rows], clipped * advantages[rows]).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            if ARITHMETIC == "snapped":
                snap(weights)


def digest(tensors: list[torch.Tensor]) -> str:
    """Return a SHA-256 over every bit of the tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().numpy().tobytes())
    return found.hexdigest()


# %% train
generator = torch.Generator().manual_seed(0)
weights = initial_weights(generator)
adam = torch.optim.Adam(weights.values(), lr=LEARNING_RATE, foreach=False)
right, token_digests, weight_digests = [], [], []
for _ in range(ITERATIONS):
    prompts = torch.randint(DIGITS, (BATCH // GROUP, PROMPT), generator=generator).repeat_interleave(GROUP, 0)
    ids = sample(weights, prompts, generator)
    update(weights, adam, ids, generator)
    right.append(int(returns_of(ids).sum()))
    token_digests.append(digest([ids]))
    weight_digests.append(digest(list(weights.values())))
print("parameters:", sum(weight.numel() for weight in weights.values()))

# %% returns
every = 5
for start in range(0, ITERATIONS, every):
    some = right[start : start + every]
    print(f"iteration {start + len(some)}: {sum(some)} of the last {len(some) * BATCH * PROMPT} digits right")

# %% sample
for row in sample(weights, torch.arange(PROMPT).repeat(3, 1), torch.Generator().manual_seed(1)).tolist():
    print(*row[:PROMPT], "→", *row[PROMPT:])

# %% tokens
for number, text in enumerate(token_digests, start=1):
    print(f"iteration {number}: {text}")

# %% weights
for number, text in enumerate(weight_digests, start=1):
    print(f"iteration {number}: {text}")
