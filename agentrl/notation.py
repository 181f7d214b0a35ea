"""Chapter 0 · Notation and How to Use This Book.

How do I read and run this book?

Built from chapters/00-notation.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import torch

__all__ = ["DTYPE", "generator", "masked_sum", "masked_mean"]

# chapters/00-notation.ipynb · cell saved-basics
DTYPE = torch.float64  # the element type of the book's real numbers


def generator(seed: int) -> torch.Generator:
    """Return a new random generator on the CPU, started from `seed`.

    Functions that draw random numbers take a generator as an argument; nothing in the book uses the global one.
    """
    return torch.Generator().manual_seed(seed)


# chapters/00-notation.ipynb · cell saved-masked
def masked_sum(values: torch.Tensor, mask: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Return the sum of the values where the mask is true, over everything or along `dim`.

    `values` and `mask` have the same shape, for instance `[B, T]`. Values at masked positions are never read: nan and
    inf there change nothing, and their gradient is 0. A row along `dim` that selects nothing gives 0.
    Raises TypeError if the mask is not bool, ValueError if the shapes differ or, without `dim`, nothing is selected.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask is {mask.dtype}; it must be torch.bool")
    if values.shape != mask.shape:
        raise ValueError(f"values {list(values.shape)} and mask {list(mask.shape)} must have the same shape")
    if dim is None and not mask.any():
        raise ValueError(f"the mask {list(mask.shape)} selects nothing; there is no sum or mean over no values")
    kept = torch.where(mask, values, torch.zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: torch.Tensor, mask: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Return the mean of the values where the mask is true, over everything or along `dim`.

    Shapes, masked positions and errors are those of `masked_sum`; a row along `dim` that selects nothing gives 0.
    Means of integers and booleans are of type `DTYPE`.
    """
    total = masked_sum(values, mask, dim)
    count = mask.sum() if dim is None else mask.sum(dim)
    return (total if total.is_floating_point() else total.to(DTYPE)) / count.clamp(min=1)
