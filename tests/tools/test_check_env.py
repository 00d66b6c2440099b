"""tools/check_env.py: versions, troubles, and a table of forms."""

import pytest

FORMS = ('plain', 'not streamed', 'streamed', 'training', 'packed')
FORMS += ('window', 'softmax window', 'class token', 'softmax')


@pytest.mark.slow
def test_the_table_has_a_row_for_every_form(run, monkeypatch, capsys):
    monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_FP16')
    with pytest.raises(SystemExit) as end:
        run('check_env.py', '--device', 'cpu', '--grid', '4', '6', '--no-compile')

    printed = capsys.readouterr().out
    assert not end.value.code
    assert 'mmengine' in printed and 'CPU: ' in printed
    for precision in ('float32', 'float16', 'bfloat16'):
        for form in FORMS:
            assert any(
                [line[:12].strip(), line[12:28].strip()] == [precision, form]
                for line in printed.splitlines()
            ), printed


def test_a_device_that_is_not_there_is_refused(run):
    with pytest.raises(SystemExit, match='--device nowhere cannot be used'):
        run('check_env.py', '--device', 'nowhere')
