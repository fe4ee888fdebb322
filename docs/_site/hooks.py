"""What MkDocs needs beyond its settings: pages that live outside docs/, links to them, and the papers in the menu."""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

# where a page of the checkout stands on the site; elsewhere in the checkout it keeps its own place
OUTSIDE = {
    "CONTRIBUTING.md": "add-an-algorithm.md",
    "benchmarks/README.md": "performance.md",
    "benchmarks/history.md": "performance-before.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}
LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]*)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The papers' pages, which `coterie reproduce` writes, stand in the menu; the title names the version."""
    project = tomllib.loads(Path(config.config_file_path).with_name("pyproject.toml").read_text("utf-8"))["project"]
    config.site_name = f"{config.site_name} {project['version']}"
    pages = sorted(Path(config.docs_dir, "papers").glob("*.md"), key=lambda p: (p.name != "index.md", p.name))
    if pages:
        config.nav.append({"Papers": [f"papers/{p.name}" for p in pages]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Pages of the checkout that are not under docs/ join the site."""
    root = Path(config.config_file_path).parent
    for source, place in OUTSIDE.items():
        if files.get_file_from_path(place) is None:
            text = (root / source).read_text("utf-8")
            files.append(File.generated(config, place, content=moved(text, source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links from docs/ to pages that have moved here."""
    return markdown if page.file.generated_by else moved(markdown, f"docs/{page.file.src_uri}")


def moved(text: str, source: str) -> str:
    """The text of a file of the checkout with its links as they are on the site."""
    there = posixpath.dirname(OUTSIDE.get(source, source.removeprefix("docs/")))

    def link(found: re.Match[str]) -> str:
        path, anchor = found[1], found[2] or ""
        if not path:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        target = OUTSIDE.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(target, there or '.')}{anchor})"

    return LINK.sub(link, text)
