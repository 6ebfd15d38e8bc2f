"""MkDocs hooks: pages for what lies outside of docs/, and folders in the nav.

In: the pages of docs/, whose links are relative to their files, so that they lead somewhere in the
repository, too. Out: the same pages, with a page of the site behind every link: a file elsewhere
that one of them links to is shown on a page of its own, below `source/`. A folder of docs/ in the
nav (`decisions/`) stands for a list of its pages and the pages themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".c": "c",
    ".h": "c",
    ".toml": "toml",
    ".yml": "yaml",
    ".sh": "sh",
    "": "sh",
}
WIDE = 7  # signs | of a table's row
UNSEARCHED = "---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n\n"

origins: dict[str, Path] = {}  # by the page's path in the site, the file that it shows


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Folders of the nav become their pages."""
    docs = Path(config.docs_dir)

    def opened(entry: Any) -> Any:
        if isinstance(entry, list):
            return [opened(e) for e in entry]
        if isinstance(entry, dict):
            return {title: opened(e) for title, e in entry.items()}
        if not entry.endswith("/"):
            return entry
        pages = sorted(p.relative_to(docs).as_posix() for p in (docs / entry).glob("*.md"))
        return [f"{entry}index.md", *(p for p in pages if p != f"{entry}index.md")]

    config.nav = opened(config.nav)
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Pages for what the documentation links to, and for what those pages link to."""
    docs = Path(config.docs_dir)
    origins.clear()
    for file in files.documentation_pages():
        origins[file.src_uri] = docs / file.src_uri
    for folder in sorted({Path(uri).parent.as_posix() for uri in origins} - {"."}):
        if f"{folder}/index.md" not in origins:
            made = File.generated(config, f"{folder}/index.md", content=listed(docs / folder))
            files.append(made)
    waiting = list(origins)
    while waiting:
        uri = waiting.pop()
        for path in outside(uri, docs):
            shown = shown_at(path)
            if shown not in origins:
                origins[shown] = path
                files.append(page_of(path, config))
                waiting.append(shown)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The links of the page, as the site has them."""
    origin = origins.get(page.file.src_uri)
    if origin is None or origin.suffix != ".md":
        return markdown
    docs, here = Path(config.docs_dir), page.file.src_uri
    if max(row.count("|") for row in markdown.split("\n")) > WIDE:
        page.meta["hide"] = [*page.meta.get("hide", []), "toc"]  # the table gets its room

    def changed(link: re.Match[str]) -> str:
        path = leads_to(link[2], origin)
        if path is None:
            return link[0]
        if path.is_relative_to(docs):
            there = path.relative_to(docs).as_posix() + ("/index.md" if path.is_dir() else "")
        else:
            there = shown_at(path)
        return f"{link[1]}{os.path.relpath(there, os.path.dirname(here) or '.')}{link[3] or ''})"

    return between_blocks(markdown, lambda text: LINK.sub(changed, text))


def between_blocks(markdown: str, change: Callable[[str], str]) -> str:
    """The page with what is not inside a fenced block changed."""
    parts, end = list[str](), 0
    for block in FENCED.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def outside(uri: str, docs: Path) -> Iterator[Path]:
    """What a page links to outside of docs/."""
    origin = origins[uri]
    if origin.suffix == ".md":
        for link in LINK.finditer(FENCED.sub("", origin.read_text())):
            path = leads_to(link[2], origin)
            if path is not None and not path.is_relative_to(docs):
                yield path
    elif origin.is_dir():
        yield from sources(origin)


def leads_to(link: str, origin: Path) -> Path | None:
    """The file or folder of the repository that a link leads to; None for addresses, and for what
    is not there, which MkDocs warns of."""
    path = Path(os.path.normpath(origin.parent / link))
    known = "://" not in link and path.exists() and path.is_relative_to(ROOT)
    return path if known else None


def shown_at(path: Path) -> str:
    """Where the site shows a file that lies outside of docs/: on a page, or as it is."""
    name = f"source/{path.relative_to(ROOT).as_posix()}"
    return f"{name.removesuffix('.md')}.md" if is_page(path) else name


def is_page(path: Path) -> bool:
    """Is it text, or a folder? Pictures and sounds are not."""
    return path.is_dir() or path.suffix in {".md", *LANGUAGES}


def sources(folder: Path) -> list[Path]:
    """The files of a folder that are text of ours."""
    return sorted(p for p in folder.iterdir() if p.suffix in LANGUAGES and p.is_file())


def page_of(path: Path, config: MkDocsConfig) -> File:
    """The page that shows a file or folder; the file itself where it is no text."""
    if not is_page(path):
        return File.generated(config, shown_at(path), content=path.read_bytes())
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md":
        content = path.read_text()
    elif path.is_dir():
        there = [(p.name, f"{path.name}/{Path(shown_at(p)).name}") for p in sources(path)]
        rows = [f"* [`{shown}`]({link})" for shown, link in there]
        content = f"# {name}\n\n" + "\n".join(rows) + "\n"
    else:
        language = LANGUAGES[path.suffix]
        content = f"# {name}\n\n``````{language}\n{path.read_text()}``````\n"
    return File.generated(
        config, shown_at(path), content=UNSEARCHED + content, inclusion=InclusionLevel.NOT_IN_NAV
    )


def listed(folder: Path) -> str:
    """A page that lists those of a folder, by their headings."""
    rows = list[str]()
    for page in sorted(folder.glob("*.md")):
        heading = HEADING.search(page.read_text())
        rows.append(f"* [{heading[1] if heading else page.stem}]({page.name})")
    return f"# {folder.name.capitalize()}\n\n" + "\n".join(rows) + "\n"
