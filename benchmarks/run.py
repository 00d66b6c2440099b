"""Measure speed and memory of InLine attention beside what one would use instead.

Commands:

    layer      one attention layer of each stage of InLine-PVT-T
    backbone   inference of InLine-PVT-T and InLine-Swin-T
    train      forward and backward of InLine-PVT-T
    scale      inference of InLine-PVT-T at growing resolutions
    detector   prediction of Mask R-CNN with InLine-PVT-T, and the share of the backbone
    all        all of these with their own defaults; the command if none is given
    table      print the tables of finished runs again

Each command first checks that contenders with the same weights give the same results (else it
ends with an error), then times all of them in turns, in one process. Its tables compare
everything with ours: a time ratio of 4 means four times as long. It writes COMMAND.json and
COMMAND.png to the folder --out.

    python benchmarks/run.py layer
    python benchmarks/run.py backbone --shape 1024 1024 --compile
    python benchmarks/run.py scale --sides 512 1024 2048 4096 8192 --time-limit 300
    python benchmarks/run.py --quick
    python benchmarks/run.py table work_dirs/benchmarks/*.json
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import torch

# Isolated Python (-I) does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases
import options
import plots
from contest import Case, Settings
from measure import Disagreement, measure_case
from report import case_table, describe_machine, machine_line, report, summary


def main(arguments: list[str]) -> None:
    args = options.parse(arguments, __doc__)
    if args.command == 'table':
        print('\n\n'.join(report(json.loads(file.read_text())) for file in args.files))
        return
    torch.set_num_threads(args.threads)
    try:
        for command in options.DEFAULTS if args.command == 'all' else [args.command]:
            run(command, args)
    except Disagreement as error:
        sys.exit(f'{command}: {error}')
    except KeyboardInterrupt:
        sys.exit(f'{command}: interrupted; finished cases are in {args.out}')


def run(command: str, args: argparse.Namespace) -> None:
    """Measure all cases of a command; a finished case is on disk, whatever comes after."""
    chosen = options.choose(args, command)
    settings = Settings(
        args.device, args.threads, chosen.pop('repeats'), args.time_limit, args.tolerance
    )
    results = dict(
        command=command,
        options=chosen,
        settings=dataclasses.asdict(settings),
        machine=describe_machine(args.device),
        cases=[],
    )
    args.out.mkdir(parents=True, exist_ok=True)
    print(f'{command}: {machine_line(results["machine"])}\n', flush=True)
    skipped = {}
    for case in make_cases(command, chosen, args.device):
        # Who does not fit, or takes too long, will not fare better at a larger size.
        left_out = skipped if command == 'scale' else {}
        results['cases'].append(measure_case(case, settings, left_out))
        (args.out / f'{command}.json').write_text(json.dumps(results, indent=1))
        print(case_table(results['cases'][-1]), end='\n\n', flush=True)
    plot = plots.plot_growth if command == 'scale' else plots.plot_bars
    plot(results['cases'], args.out / f'{command}.png')
    print(f'{summary(results)}Written: {args.out / command}.json, .png\n', flush=True)


def make_cases(command: str, chosen: dict, device: str) -> list[Case]:
    match command:
        case 'layer':
            return cases.layer_cases(**chosen)
        case 'backbone':
            return cases.backbone_cases(**chosen, device=device)
        case 'train':
            return cases.train_cases(**chosen)
        case 'scale':
            return cases.scale_cases(**chosen, device=device)
        case 'detector':
            return cases.detector_cases(**chosen)


if __name__ == '__main__':
    main(sys.argv[1:])
