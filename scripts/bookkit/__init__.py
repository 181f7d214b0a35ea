"""What the scripts share: the model of a chapter, the library builder, the checker, the linter, the figures."""
