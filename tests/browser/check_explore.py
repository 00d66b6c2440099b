"""The page of tools/explore.py in chromium: run by make test-browser, not by make test.

Chromium and chromedriver are those of the system. With SCREENSHOTS=FOLDER a picture of the page is
left there.
"""

import json
import os
import shutil
from pathlib import Path
from urllib.parse import urlparse

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from helpers.explored import explorable, write_image
from helpers.server import free_port
from mminline.explore import Explorer
from mminline.explore.server import running_page

SECONDS = 60  # to wait for an answer at most; machines may be busy
FLAGS = (
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
    '--window-size=1500,1300',
)  # fmt: skip


@pytest.fixture(scope='module')
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp('images')
    images = [write_image(folder / 'noise.png'), write_image(folder / 'wide.png', 40, 80)]
    explorer = Explorer([explorable('detector'), explorable('segmentor')], images)
    with running_page(explorer, free_port()) as address:
        yield address


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which('chromium')
    for flag in (*FLAGS, f'--user-data-dir={tmp_path_factory.mktemp("profile")}'):
        options.add_argument(flag)
    options.set_capability('goog:loggingPrefs', {'performance': 'ALL'})
    service = webdriver.ChromeService(shutil.which('chromedriver'))
    with webdriver.Chrome(options, service) as driver:
        yield driver


@pytest.fixture(scope='module')
def page(browser, address):
    browser.get(address)
    return Page(browser)


class Page:
    """What a reader sees and does."""

    def __init__(self, browser) -> None:
        self.browser = browser
        self.wait(lambda: self.source('.attention') and self.source('.prediction'))

    def wait(self, condition):
        return WebDriverWait(self.browser, SECONDS).until(lambda _: condition())

    def find(self, selector: str, index: int = 0):
        found = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return found[index] if len(found) > index else None

    def picture(self, selector: str, index: int = 0):
        return self.find(f'.explored{selector} img', index)

    def source(self, selector: str, index: int = 0) -> str | None:
        picture = self.picture(selector, index)
        return picture and picture.get_attribute('src')

    def click(self, selector: str, across: float, down: float) -> None:
        """Click a picture, as far across and down from its middle as shares of its size."""
        picture = self.picture(selector)
        self.browser.execute_script('arguments[0].scrollIntoView({block: "center"})', picture)
        offset = int(across * picture.size['width']), int(down * picture.size['height'])
        ActionChains(self.browser).move_to_element_with_offset(picture, *offset).click().perform()

    def change_of(self, selector: str, action) -> None:
        """Do something, and wait until a picture is another one."""
        before = self.source(selector)
        action()
        self.wait(lambda: self.source(selector) not in (None, before))

    def text(self) -> str:
        return self.find('body').text


def test_the_page_shows_predictions_and_weights(page):
    assert page.source('.prediction', 1)  # of the second model
    assert page.source('.local-residual') and page.source('.sum')
    page.wait(lambda: 'locality' in page.text())
    if folder := os.environ.get('SCREENSHOTS'):
        page.browser.save_screenshot(str(Path(folder, 'explore.png')))


def test_a_click_moves_the_query_and_changes_the_maps(page):
    for across, down in ((-0.3, -0.3), (0.28, 0.2)):
        page.change_of('.attention', lambda where=(across, down): page.click('.prediction', *where))
    cell = (int(0.7 * 48 / 8), int(0.78 * 64 / 8))  # stage 2 has a token for each 8 x 8 px
    page.wait(lambda: f'query in row {cell[0]}, column {cell[1]}' in page.text())


def test_a_map_can_be_clicked_too(page):
    page.change_of('.attention', lambda: page.click('.attention', 0.1, -0.2))


def test_another_layer_shows_other_weights(page):
    def choose() -> None:
        page.find('#layer input').click()
        page.wait(lambda: page.find('ul[role=listbox] li[aria-label="1.1"]')).click()

    page.change_of('.attention', choose)
    page.wait(lambda: 'layer 1.1 (inline)' in page.text())


def test_the_slider_changes_the_prediction(page):
    slider = page.find('#score input[type=range]')
    # Wherever the scores lie: all objects at one end, none at the other.
    page.change_of('.prediction', lambda: slider.send_keys(Keys.END))
    page.change_of('.prediction', lambda: slider.send_keys(Keys.HOME))


def test_another_image_can_be_picked(page):
    page.change_of('.prediction', lambda: page.find('#images button.thumbnail-item', 1).click())


def test_a_broken_upload_is_explained_and_the_page_lives_on(page, tmp_path):
    path = tmp_path / 'broken.png'
    path.write_bytes(b'broken')
    page.find('#upload input[type=file], input[type=file]').send_keys(str(path))

    page.wait(lambda: 'broken.png cannot be read' in page.text())
    if folder := os.environ.get('SCREENSHOTS'):
        page.browser.save_screenshot(str(Path(folder, 'broken.png')))
    page.change_of('.attention', lambda: page.click('.prediction', -0.2, 0.1))


def test_the_browser_asks_no_other_machine(page, address):
    messages = [json.loads(entry['message']) for entry in page.browser.get_log('performance')]
    urls = [
        each['message']['params']['request']['url']
        for each in messages
        if each['message']['method'] == 'Network.requestWillBeSent'
    ]
    hosts = {urlparse(url).netloc for url in urls if url.startswith(('http', 'ws'))}
    assert hosts == {urlparse(address).netloc}
