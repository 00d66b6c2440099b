"""The documentation site builds, with all links and anchors checked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def build(root: Path, out: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, root / 'docs' / 'site' / 'build.py', '--site-dir', out]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True)


def test_the_site_has_the_guides_and_the_reference(tmp_path):
    finished = build(ROOT, tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert 'Predictions of a detector or segmentor' in (tmp_path / 'api' / 'apis.html').read_text()
    guides = {path.stem for path in (ROOT / 'docs').glob('*.md')}
    guides |= {path.stem for path in (ROOT / 'docs').glob('*.ipynb')}
    assert guides <= {path.stem for path in (tmp_path / 'docs').glob('*.html')}
    assert 'Train it for some seconds' in (tmp_path / 'docs' / 'tutorial.html').read_text()
    rooms = {path.parent.name for path in (ROOT / 'mminline').glob('*/__init__.py')}
    assert rooms == {path.stem for path in (tmp_path / 'api').glob('*.html')}
    # Nothing may be fetched when a page is read.
    for page in tmp_path.rglob('*.html'):
        text = page.read_text()
        assert not re.findall(r'(?:src="|rel="stylesheet" href=")http[^"]*', text), page
