"""The page: its components, and which handler answers which event."""

from pathlib import Path

import gradio as gr

from .handlers import MEAN, PARTS, Handlers
from .images import thumbnail
from .model import LOWEST_SCORE
from .session import Explorer

FIRST_SCORE = 0.3
MOST_THUMBNAILS = 60
HELP = (
    'Click a pixel in any picture. The maps show the weights that the query there gives to all '
    'keys, in multiples of the uniform weight 1/N: red is positive, blue negative.'
)
# Labels stand above the pictures, which they would hide a corner of.
CSS = """
.explored img { image-rendering: pixelated; cursor: crosshair; }
.explored label[data-testid=block-label] { position: static; width: fit-content; }
.numbers { font-size: 0.9em; }
#message p { color: var(--error-text-color); font-weight: bold; }
"""


class ModelColumn:
    """Pictures and numbers of one model."""

    def __init__(self, name: str) -> None:
        with gr.Column(min_width=420):
            gr.Markdown(f'### {name}')
            with gr.Row():
                with gr.Column(scale=3, min_width=240):
                    self.prediction = _picture('prediction', f'prediction of {name}')
                    self.text = gr.Markdown(elem_classes='numbers')
                    self.measures = gr.Markdown(elem_classes='numbers')
                with gr.Column(scale=2, min_width=160):
                    self.maps = [_picture(part, f'{part} of {name}') for part in PARTS]

    @property
    def outputs(self) -> list[gr.components.Component]:
        """Components in the order in which a look fills them."""
        return [self.prediction, *self.maps, self.text]


def _picture(label: str, alt_text: str) -> gr.Image:
    # JPEG: the other formats take several times as long to write.
    return gr.Image(
        label=label, alt_text=alt_text, format='jpeg', interactive=False,
        buttons=['fullscreen'], elem_classes=['explored', label.replace(' ', '-')],
    )  # fmt: skip


class Page:
    """The page of an explorer.

    Args:
        explorer: Models and images.
        folder: Where files to download are written.
    """

    def __init__(self, explorer: Explorer, folder: Path) -> None:
        self.explorer = explorer
        with gr.Blocks(
            title='mminline explore', analytics_enabled=False, fill_width=True
        ) as self.blocks:
            self.scene = gr.State()
            self.picked = gr.Number(0, visible=False, precision=0)
            gr.Markdown(f'## Where does a query look?\n{HELP}')
            self._add_controls()
            self.message = gr.Markdown(elem_id='message')
            self.handlers = Handlers(explorer, folder, self.message)
            with gr.Row():
                self.columns = [ModelColumn(model.name) for model in explorer.models]
            with gr.Row():
                self.save = gr.Button('Make a figure and the numbers to download', elem_id='save')
                self.files = gr.File(
                    label='figure and numbers', file_count='multiple', elem_id='files'
                )
            self._connect()

    # fmt: off
    def _add_controls(self) -> None:
        explorer = self.explorer
        with gr.Row():
            self.gallery = gr.Gallery(
                [(thumbnail(path), path.name) for path in explorer.images[:MOST_THUMBNAILS]],
                show_label=False, elem_id='images', visible=bool(explorer.images), scale=4,
                columns=10, height=150, object_fit='contain', allow_preview=False,
                fit_columns=False, interactive=False, buttons=[],
            )
            with gr.Column(min_width=220):
                self.upload = gr.UploadButton('Upload an image', elem_id='upload')
                with gr.Row():
                    self.x = gr.Number(0, label='x', precision=0, minimum=0, min_width=80)
                    self.y = gr.Number(0, label='y', precision=0, minimum=0, min_width=80)
        with gr.Row():
            self.layer = gr.Dropdown(
                explorer.layer_names, value=explorer.first_layer, label='layer: stage.block',
                elem_id='layer', min_width=120,
            )
            self.head = gr.Dropdown(
                [MEAN], value=MEAN, label='head', elem_id='head', min_width=120,
            )
            self.score_thr = gr.Slider(
                LOWEST_SCORE, 1, FIRST_SCORE, step=0.05, label='score threshold of objects',
                elem_id='score', visible=False,
            )
    # fmt: on

    def _connect(self) -> None:
        """Say what happens when, and under which name programs can ask for it."""
        handlers, settings = self.handlers, [self.layer, self.head, self.score_thr]
        place = [self.x, self.y]
        looked = [*place, self.head, *(part for each in self.columns for part in each.outputs)]
        looked.append(self.message)
        opened = [self.scene, self.score_thr, *looked]

        # Gradio gives each event a queue of its own: a slow answer would overwrite a later one.
        in_turn = dict(concurrency_id='look')
        opening = [
            self.blocks.load(
                handlers.pick, [self.picked, *settings], opened, api_name='pick', **in_turn
            ),
            self.gallery.select(_index, None, self.picked, api_visibility='private').then(
                handlers.pick, [self.picked, *settings], opened, api_visibility='private', **in_turn
            ),
            self.upload.upload(
                handlers.open, [self.upload, *settings], opened, api_name='open', **in_turn
            ),
        ]
        ask = [self.scene, *settings, *place]
        quick = dict(outputs=looked, show_progress='hidden', trigger_mode='always_last', **in_turn)
        looking = [
            picture.select(
                handlers.click, [self.scene, *settings], api_visibility='private', **quick
            )
            for column in self.columns
            for picture in (column.prediction, *column.maps)
        ]
        looking += [
            gr.on(
                [self.layer.input, self.head.input, self.x.submit, self.y.submit],
                handlers.look, ask, api_name='look', **quick,
            )
        ]  # fmt: skip
        # The pictures come first; the numbers of a layer may take as long again.
        for event in opening + looking:
            event.success(
                handlers.measure,
                [self.scene, self.layer],
                [column.measures for column in self.columns],
                show_progress='hidden',
                concurrency_id='measure',
                api_name='measure' if event is opening[0] else None,
                api_visibility='public' if event is opening[0] else 'private',
            )
        self.score_thr.input(
            handlers.redraw, [self.scene, self.score_thr, *place],
            [*(column.prediction for column in self.columns), self.message],
            show_progress='hidden', trigger_mode='always_last', api_name='redraw', **in_turn,
        )  # fmt: skip
        self.save.click(
            handlers.save, [self.scene, self.layer, self.head, *place],
            [self.files, self.message], api_name='save',
        )  # fmt: skip


def _index(event: gr.SelectData) -> int:
    return event.index
