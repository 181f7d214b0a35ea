"""Chapter 1 · What Is Agentic Reinforcement Learning?

What changes when a language model acts in an environment?

Built from chapters/01-introduction.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

__all__ = ["CLAMP_ISSUE", "CLAMP_SOURCE", "CLAMP_TESTS"]

# chapters/01-introduction.ipynb · cell clamp-task

# The issue of the clamp task, as its reporter wrote it.
CLAMP_ISSUE = (
    "clamp(value, lower, upper) should limit value to the interval [lower, upper], "
    "but clamp(3, 0, 5) returns 0 instead of 3."
)
# The defective source that the issue is about.
CLAMP_SOURCE = "def clamp(value, lower, upper):\n    return min(lower, max(value, upper))"

# chapters/01-introduction.ipynb · cell clamp-tests

# Its tests as (arguments, expected): the agent may run "public", only the scorer runs "hidden".
CLAMP_TESTS = {
    "public": (((3, 0, 5), 3), ((-2, 0, 5), 0), ((9, 0, 5), 5)),
    "hidden": (((0.5, 0, 1), 0.5), ((-7, -5, -1), -5), ((4, 2, 2), 2), ((-3, -5, -1), -3)),
}
