"""Write the book as a site, in English and Chinese: chapters and documents become Mintlify MDX in website/."""

from __future__ import annotations

from bookkit import entry
from bookkit.site.cli import main

if __name__ == "__main__":
    raise SystemExit(entry.run(main))
