"""Build the documentation site from the pages of the repository: the program behind `make docs`.

The pages stay where they are read on their own, and link to each other and to sources by path. This
copies them and what they link to into one folder with the same layout, so that all links hold,
turns the notebook into a page, and has MkDocs check and render it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from notebook_page import write_page

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
PAGES = ('*.md', 'docs/*.md', 'configs/README.md', 'benchmarks/README.md')
BADGE = re.compile(r'^\[!\[.+\n', re.MULTILINE)
LINK = re.compile(r'\]\(([^)#\s]+)|(?:src|href)="([^"#]+)"')


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gather(Path(folder))
        command = [sys.executable, '-m', 'mkdocs', 'build', '--strict', '--clean']
        finished = subprocess.run(
            [*command, '--config-file', SITE / 'mkdocs.yml', *sys.argv[1:]],
            # The notice of a next major version does not concern the pinned one.
            env=dict(os.environ, PAGES=folder, NO_MKDOCS_2_WARNING='1'),
        )
    if finished.returncode:
        sys.exit('docs: the site was not built, for the reasons above.')
    print('The site is in site/: open site/index.html.')


def gather(folder: Path) -> None:
    """Copy all pages and what they link to, in the layout of the repository."""
    for page in sorted(page for pattern in PAGES for page in ROOT.glob(pattern)):
        for path in (page, *linked_files(page)):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    for page in folder.rglob('*.md'):
        text = BADGE.sub('', page.read_text())  # a browser would fetch their pictures
        page.write_text(text.replace('.ipynb)', '.md)'))  # notebooks are pages there
    for notebook in ROOT.glob('docs/*.ipynb'):
        write_page(notebook, folder / 'docs' / f'{notebook.stem}.md')
    shutil.copytree(SITE / 'api', folder / 'api')


def linked_files(page: Path) -> list[Path]:
    """List the files of the repository that a page links to."""
    targets = [first or second for first, second in LINK.findall(page.read_text())]
    files = [(page.parent / target).resolve() for target in targets if '://' not in target]
    return [path for path in files if path.is_file() and path.is_relative_to(ROOT)]


if __name__ == '__main__':
    main()
