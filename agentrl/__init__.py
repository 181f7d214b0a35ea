"""The library that grows out of the book *Agentic Reinforcement Learning: From Policy Gradients to Coding Agents*.

Every chapter derives its functions, checks them in front of the reader and saves the ones that later chapters call;
this package is all that the chapters saved, in their order. In a chapter, `import agentrl as arl` gives what the
chapters before it saved; outside the book it gives everything. The derivation of each name is in the chapter it is
listed under.

Chapter 0 · Notation and How to Use This Book (agentrl.notation)
    DTYPE        the element type of the book's real numbers
    generator    Return a new random generator on the CPU, started from `seed`.
    masked_sum   Return the sum of the values where the mask is true, over everything or along `dim`.
    masked_mean  Return the mean of the values where the mask is true, over everything or along `dim`.

Chapter 1 · What Is Agentic Reinforcement Learning? (agentrl.introduction)
    CLAMP_ISSUE   The issue of the clamp task, as its reporter wrote it.
    CLAMP_SOURCE  The defective source that the issue is about.
    CLAMP_TESTS   Its tests as (arguments, expected): the agent may run "public", only the scorer runs "hidden".

Built from the saved cells of chapters/ by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

# The imports follow the book, not the alphabet.
# isort: skip_file

from agentrl.notation import DTYPE, generator, masked_sum, masked_mean
from agentrl.introduction import CLAMP_ISSUE, CLAMP_SOURCE, CLAMP_TESTS

__version__ = "0.1.0"

__all__ = ["DTYPE", "generator", "masked_sum", "masked_mean", "CLAMP_ISSUE", "CLAMP_SOURCE", "CLAMP_TESTS"]
