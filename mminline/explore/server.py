"""The server of the page: for this machine only, nothing reported, nothing left behind."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Gradio asks on import.
os.environ['GRADIO_ANALYTICS_ENABLED'] = 'False'
os.environ['HF_HUB_DISABLE_TELEMETRY'] = '1'

import gradio as gr
from starlette.middleware import Middleware
from uvicorn.config import LOGGING_CONFIG

from .page import CSS, Page
from .session import Explorer

HOST = '127.0.0.1'
# Browsers then refuse whatever a page might want from elsewhere: fonts, scripts, pictures.
OWN_CONTENT = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; base-uri 'self'; "
    "form-action 'self'"
)


class OwnContentOnly:
    """Tells browsers that a page has nothing from other places."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        async def send_with_policy(message: dict) -> None:
            if message['type'] == 'http.response.start':
                header = (b'content-security-policy', OWN_CONTENT.encode())
                message['headers'] = [*message.get('headers', []), header]
            await send(message)

        await self.app(scope, receive, send_with_policy)


@contextlib.contextmanager
def running_page(explorer: Explorer, port: int, share: bool = False) -> Iterator[str]:
    """Serve the page of an explorer as long as the context lasts; yields its address.

    Uploads, pictures and files to download are in a temporary folder, which is removed at the end.

    Args:
        explorer: Models and images.
        port: Port on this machine.
        share: Whether to open a tunnel, so that everybody who knows its address sees the page.
    """
    with tempfile.TemporaryDirectory(prefix='mminline-explore-') as folder, _environment(folder):
        blocks = Page(explorer, Path(folder)).blocks
        try:
            # _frontend=False: else Gradio asks its own page once more, when it already runs, and
            # gives up after three seconds, which a busy machine may need.
            with _logs_kept_open():
                _, local, shared = blocks.launch(
                    server_name=HOST, server_port=port, share=share, show_error=True, quiet=True,
                    prevent_thread_lock=True, ssr_mode=False, css=CSS, theme=plain_theme(),
                    footer_links=['settings'], state_session_capacity=4, enable_monitoring=False,
                    run_history=False, _frontend=False,
                    app_kwargs=dict(middleware=[Middleware(OwnContentOnly)]),
                )  # fmt: skip
        except (OSError, OverflowError) as error:
            raise ValueError(f'--port {port} cannot be used, take another: {error}') from None
        try:
            yield shared or local
        finally:
            blocks.close(verbose=False)


def plain_theme() -> gr.Theme:
    """Gradio's theme with the fonts of the reader's system: nothing is fetched."""
    return gr.themes.Default(
        font=['system-ui', 'sans-serif'], font_mono=['ui-monospace', 'monospace']
    )


@contextlib.contextmanager
def _logs_kept_open() -> Iterator[None]:
    """Keep the server from closing all log files of the process, such as those of mmengine.

    The logging module does that whenever it is configured anew, unless only levels change.
    """
    before = dict(LOGGING_CONFIG)
    LOGGING_CONFIG.clear()
    LOGGING_CONFIG.update(version=1, incremental=True)
    try:
        yield
    finally:
        LOGGING_CONFIG.clear()
        LOGGING_CONFIG.update(before)


@contextlib.contextmanager
def _environment(folder: str) -> Iterator[None]:
    """Have Gradio keep its files in a folder, and reach its own server past any proxy."""
    hosts = filter(None, [os.environ.get('NO_PROXY') or os.environ.get('no_proxy'), HOST])
    value = ','.join(hosts)
    changes = dict(GRADIO_TEMP_DIR=folder, NO_PROXY=value, no_proxy=value)
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
