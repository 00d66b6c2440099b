"""Documents agree with the code: shapes, imports, paths, links, examples."""

import ast
import re
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from mminline.layers import Block, InLineAttention, SoftmaxAttention, functional
from mminline.layers.attention import inline
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *('benchmarks', 'configs', 'docs', 'environment', 'mminline', 'requirements', 'tests'),
    'tools',
)
PAGES = sorted(
    page
    for folder in ('.', 'docs', 'configs', 'benchmarks')
    for page in (ROOT / folder).glob('*.md')
)
ARCHITECTURE = (ROOT / 'docs' / 'architecture.md').read_text()
BATCH = 2


def named(page):
    return str(page.relative_to(ROOT))


def fenced(text, language):
    return re.findall(rf'^```{language}\n(.*?)^```', text, re.S | re.M)


def table_rows(text):
    """Cells of the first table of a text, without its head."""
    lines = re.search(r'(?:^\|.*\n)+', text, re.M).group().splitlines()[2:]
    return [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]


def shape_of(cell, **sizes):
    """A shape such as (B, N, m·C) in numbers."""
    factors = [part.split('·') for part in cell.strip('()').split(', ')]
    numbers = [[sizes.get(name) or int(name) for name in names] for names in factors]
    return tuple(torch.tensor(numbers_).prod().item() for numbers_ in numbers)


def record(module, shapes, key, of_input=False):
    """Keep the shape of what goes into a module, or of what comes out."""

    def keep(_, inputs, output):
        shapes[key] = tuple((inputs[0] if of_input else output).shape)

    module.register_forward_hook(keep)


def stage_shapes(backbone, sides):
    """Read the shapes that the tables list from the backbone itself, without computing."""
    stages = []
    with torch.device('meta'):
        model = backbone(arch='tiny')
        for stage in model.stages:
            shapes, block = {}, stage.blocks[0]
            record(getattr(stage.embed, 'proj', stage.embed.norm), shapes, 'embedding', True)
            record(block, shapes, 'tokens', of_input=True)
            softmax = isinstance(block.attn, SoftmaxAttention)
            record(block.attn.qkv if softmax else block.attn, shapes, 'attention', True)
            record(block.mlp.fc1, shapes, 'hidden')
            stages.append(shapes)
        # A plain transformer has one stage and several outputs of one shape.
        for shapes, output in zip(stages, model(torch.empty(BATCH, 3, *sides)), strict=False):
            shapes['output'] = tuple(output.shape)
    return stages


@pytest.mark.parametrize('sides', [(224, 224), (800, 1333)], ids=str)
@pytest.mark.parametrize(
    ('backbone', 'title', 'columns'),
    [
        (InLinePVT, 'InLine-PVT-T', ['embedding', 'tokens', 'hidden', 'output']),
        (InLineSwin, 'InLine-Swin-T', ['embedding', 'tokens', 'attention', 'hidden', 'output']),
    ],
)
def test_the_shapes_of_the_flow_are_those_of_the_backbone(backbone, title, columns, sides):
    rows = table_rows(ARCHITECTURE.split(f'**{title}**')[1])
    rows = [row for row in rows if row[0] == '{} x {}'.format(*sides)]
    assert [row[1] for row in rows] == ['1', '2', '3', '4']
    for row, shapes in zip(rows, stage_shapes(backbone, sides), strict=True):
        said = {
            column: shape_of(cell, B=BATCH) for column, cell in zip(columns, row[2:], strict=True)
        }
        assert said == {column: shapes[column] for column in columns}


@pytest.mark.parametrize('sides', [(224, 224), (800, 1333)], ids=str)
def test_the_shapes_of_a_plain_transformer_are_those_of_the_backbone(sides):
    rows = table_rows(ARCHITECTURE.split('**InLine-DeiT-T**')[1])
    (row,) = [row for row in rows if row[0] == '{} x {}'.format(*sides)]
    (shapes,) = stage_shapes(InLineDeiT, sides)
    columns = ['embedding', 'tokens', 'hidden', 'output']
    assert [shape_of(cell, B=BATCH) for cell in row[1:]] == [shapes[column] for column in columns]


def spy(monkeypatch, owner, name, shapes):
    """Keep the shapes of what a function returns."""
    function = getattr(owner, name)

    def spied(*args, **options):
        result = function(*args, **options)
        parts = result if isinstance(result, tuple) else (result,)
        shapes[name] = [tuple(part.shape) for part in parts]
        return result

    monkeypatch.setattr(owner, name, spied)


def test_the_shapes_inside_a_block_are_those_of_its_functions(monkeypatch):
    sizes = dict(B=BATCH, N=5 * 7, C=12, h=3, d=4, m=2)
    block = Block(InLineAttention(12, 3), embed_dims=12, mlp_ratio=2)
    shapes, layers = {}, {}
    spy(monkeypatch, functional, 'fold_attention', shapes)
    for name in ('token_mean', 'folded_inline_attention', 'inline_attention', 'local_residual'):
        spy(monkeypatch, inline, name, shapes)
    spy(monkeypatch, block.attn, 'make_kernel', shapes)
    record(block.attn.proj, layers, 'attn.proj')
    record(block.mlp.fc1, layers, 'mlp.fc1')
    for folded in (False, True):
        block.attn.folded = folded
        block(torch.randn(BATCH, 5 * 7, 12), (5, 7))

    shapes |= {name: [shape] for name, shape in layers.items()}
    rows = table_rows(ARCHITECTURE.split('**Inside an InLine block**')[1])
    said = {
        re.search('`(.+?)`', row[0]).group(1): [
            shape_of(shape, **sizes) for shape in re.findall(r'\(.*?\)', row[1])
        ]
        for row in rows
    }
    assert said == shapes


def ranks(first):
    """Rank of each name in the order of imports that begins with a name."""
    line = re.search(rf'^    ({first}.* <- .*)$', ARCHITECTURE, re.M).group(1)
    levels = [level.split(', ') for level in line.split(' <- ')]
    return {name: number for number, level in enumerate(levels) for name in level}


def imported_modules(path):
    """Full names of the modules of mminline that a file imports, as tuples of their parts."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [tuple(alias.name.split('.')) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            base = (*base, *(node.module.split('.') if node.module else ()))
            modules = [(*base, alias.name) for alias in node.names]
        else:
            continue
        yield from (module[1:] for module in modules if module[0] == 'mminline')


@pytest.mark.parametrize(
    ('folder', 'first'), [('mminline', 'registry'), ('mminline/layers', 'statistics')]
)
def test_imports_go_one_way(folder, first):
    rank, depth = ranks(first), folder.count('/')
    found = (path for path in (ROOT / folder).iterdir() if path.suffix in ('', '.py'))
    parts = {path.stem: path for path in found if path.stem != '__pycache__'}
    assert parts.keys() - {'__init__', 'version'} == rank.keys()
    for name, part in parts.items():
        if name not in rank:
            continue
        for path in [part] if part.is_file() else part.rglob('*.py'):
            for module in imported_modules(path):
                inside = module[:depth] == tuple(folder.split('/')[1:]) and len(module) > depth
                imported = module[depth] if inside else name
                if imported != name and imported in rank:
                    assert rank[imported] < rank[name], f'{path} imports {".".join(module)}'


def test_libraries_are_imported_where_the_page_says():
    for path in (ROOT / 'mminline').rglob('*.py'):
        libraries = set(re.findall(r'^ *(?:from|import) (\w+)', path.read_text(), re.M))
        assert not libraries & {'mmdet', 'mmseg'}, path
        assert 'timm' not in libraries or path.parent.name == 'timm_models', path


def headings(page):
    """Anchors of a page, as GitHub makes them."""
    titles = re.findall('^#+ (.+)$', page.read_text(), re.M)
    return {re.sub(r'[^\w\- ]', '', title).lower().replace(' ', '-') for title in titles}


@pytest.mark.parametrize('page', PAGES, ids=named)
def test_links_lead_to_files_headings_and_definitions(page):
    prose = re.sub('^```.*?^```', '', page.read_text(), flags=re.S | re.M)
    for text, target in re.findall(r'\[([^\]]*)\]\(([^)\s]+)\)', prose):
        if re.match('[a-z]+:', target):
            continue
        name, _, anchor = target.partition('#')
        path = page.parent / name if name else page
        assert path.exists(), target
        if anchor:
            assert anchor in headings(path), target
        if path.suffix == '.py' and re.fullmatch(r'`\w+`', text):
            definition = rf'^ *(def|class) {text.strip("`")}\b'
            assert re.search(definition, path.read_text(), re.M), f'{text} is not in {target}'


@pytest.mark.parametrize('page', PAGES, ids=named)
def test_paths_that_a_page_names_exist(page):
    text = page.read_text()
    commands = [block for language in ('sh', 'bash') for block in fenced(text, language)]
    prose = re.sub('^```.*?^```', '', text, flags=re.S | re.M)
    for code in (*commands, *re.findall('`([^`\n]+)`', prose)):
        for path in re.findall(rf'(?<![\w./-])(?:{"|".join(FOLDERS)})/[\w./*-]*', code):
            assert any(ROOT.glob(path.rstrip('/.'))), path


@pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16')
@pytest.mark.parametrize(
    'name',
    [
        'architecture.md',
        'attention.md',
        'explore.md',
        'large_images.md',
        'layers.md',
        'predictions.md',
        'speed.md',
    ],
)
def test_examples_run(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    examples = fenced((ROOT / 'docs' / name).read_text(), 'python')
    assert examples
    with patch.dict(functional.FEATURE_MAPS):
        names = {'__name__': name}
        for example in examples:
            exec(compile(example, name, 'exec'), names)
