"""Rewrite links from pages to files of the project. A file outside docs/ gets a page of the site or is copied to it."""

import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
_CODE = {".py": "python", ".yml": "yaml", ".toml": "toml", ".md": "markdown"}
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
ASSETS = (".svg", ".png", ".html", ".yaml")  # copied as they are


@dataclass
class Files:
    """The files of the project that pages link to, and the path of each file on the site."""

    root: Path
    linked: set[str] = field(default_factory=set)

    def link(self, page: str, path: str, line: int | None = None) -> str:
        """Return the link from a page of the site (`systems/tokenizers.md`) to a file or folder of the project."""
        place = self._place(path)
        anchor = f"#__codelineno-0-{line}" if line and place.startswith("files/") else ""
        if place.startswith("files/"):
            self.linked.add(path)
        elif "#" in place:
            place, _, name = place.partition("#")
            anchor = f"#{name}"
        return posixpath.relpath(place, posixpath.dirname(page) or ".") + anchor

    def _place(self, path: str) -> str:
        parts = path.split("/")
        if parts[0] == "docs":
            return "/".join(parts[1:])
        if path in ROOT_PAGES:
            return ROOT_PAGES[path]
        report = parts[0] == "studies" and parts[2:] in (["results"], ["results", "report.md"])
        if report and (self.root / "/".join(parts[:3]) / "report.md").is_file():
            return f"results/{parts[1]}.md"
        if parts[0] == "benchmarks" and path.endswith(".md"):
            return f"costs.md#{Path(path).stem}"
        return f"files/{path}" if path.endswith(ASSETS) else f"files/{path.rstrip('/')}.md"

    def rewritten(self, source: str, page: str, text: str) -> str:
        """Return the text of a file of the project, with its links rewritten for a page of the site.

        A link to a missing file is not changed: either only the site has that file, or the build reports the mistake.
        """

        def replaced(match: re.Match[str]) -> str:
            opening, target, anchor = match[1], match[2], match[3] or ""
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            if ":" in target or not (self.root / path).exists():
                return match[0]
            line = re.fullmatch(r"#L(\d+)", anchor)
            link = self.link(page, path, int(line[1]) if line else None)
            return f"{opening}{link})" if line or "#" in link else f"{opening}{link}{anchor})"

        return _LINK.sub(replaced, text)

    def page(self, path: str) -> str:
        """Return the page that shows a file, or lists a folder."""
        source = self.root / path
        hidden = "---\nsearch:\n  exclude: true\n---\n"
        if source.is_dir():
            names = sorted(each.name + "/" * each.is_dir() for each in source.iterdir() if each.name[0] not in "._")
            return f"{hidden}# `{path}`\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
        kind = _CODE.get(source.suffix, "text")
        text = source.read_text(encoding="utf-8")
        return f'{hidden}# `{path}`\n\n``````{kind} linenums="1"\n{text.rstrip()}\n``````\n'
