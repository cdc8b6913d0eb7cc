"""What hatchling asks of the package's description: the README with links that a page of an index
can follow, and the addresses of the project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


class Description(MetadataHookInterface):  # type: ignore[misc, unused-ignore]
    """Reads `address` of its table in pyproject.toml: where the repository is."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README and the addresses."""
        address = str(self.config["address"])
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": link(text, address)}
        metadata["urls"] = {
            "Documentation": f"{address}/blob/main/docs/README.md",
            "Source": address,
            "Changelog": f"{address}/blob/main/CHANGELOG.md",
            "Issues": f"{address}/issues",
        }


def link(text: str, address: str) -> str:
    """Return Markdown whose links and pictures are addresses of files of the repository."""
    text = re.sub(r'(src|srcset)="(?!https?:)([^"]+)"', rf'\1="{address}/raw/main/\2"', text)
    return LINK.sub(
        lambda found: (
            f"{found[1]}{found[2]}({address}/{'raw' if found[1] else 'blob'}/main/{found[3]})"
        ),
        text,
    )
