"""Turn a notebook into a page: its text, its code, and the lines and pictures stored in it."""

import base64
import json
from pathlib import Path


def write_page(notebook: Path, page: Path) -> None:
    """Write a notebook as Markdown, its pictures beside it."""
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text())['cells']):
        source = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown':
            parts.append(source)
            continue
        parts.append(f'```python\n{source}\n```')
        for count, output in enumerate(cell['outputs']):
            picture = page.with_name(f'{page.stem}-{number}-{count}.png')
            parts.append(_render(output, picture))
    page.write_text('\n\n'.join(parts) + '\n')


def _render(output: dict, picture: Path) -> str:
    """One output of a cell as Markdown; a picture is written to its file."""
    if 'image/png' in output.get('data', {}):
        picture.write_bytes(base64.b64decode(output['data']['image/png']))
        return f'![output of the cell above]({picture.name})'
    # A progress bar overwrites its line: keep what was seen last.
    lines = [line.rpartition('\r')[2] for line in ''.join(output.get('text', [])).split('\n')]
    return '```text\n' + '\n'.join(lines).strip('\n') + '\n```'
