"""Measure time and memory of InLine attention and of its alternatives.

Each command first checks that candidates with the same weights give the same results (else it
ends with an error), then times them in turns, in one process. Ratios in the tables are to ours:
a time ratio of 4 means four times as long. The results go to COMMAND.json and COMMAND.png in the
folder --out.

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

# Python with -I or -P does not look for modules beside the script.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import options
from benchmark import Case, Settings
from cases import BENCHMARKS
from machine import describe_machine, machine_line
from measure import Disagreement, measure_case
from tables import case_table


def main(arguments: list[str]) -> None:
    args = options.parse(arguments, __doc__)
    if args.command == 'table':
        print('\n\n'.join(report(json.loads(file.read_text())) for file in args.files))
        return
    torch.set_num_threads(args.threads)
    try:
        for command in BENCHMARKS if args.command == 'all' else [args.command]:
            run(command, args)
    except Disagreement as error:
        sys.exit(f'{command}: {error}')
    except KeyboardInterrupt:
        sys.exit(f'{command}: interrupted; finished cases are in {args.out}')


def run(command: str, args: argparse.Namespace) -> None:
    """Measure all cases of a benchmark, and write the file anew after each of them."""
    benchmark = BENCHMARKS[command]
    chosen = options.choose(args, command)
    settings = Settings(
        args.device,
        args.threads,
        chosen.pop('repeats', 1),
        args.time_limit or benchmark.time_limit,
        args.tolerance,
        memory=not args.no_memory,
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
    measure = benchmark.measure or measure_case
    skipped = {}
    cases = benchmark.make_cases(**chosen)
    for case in keep_candidates(cases, args.only) if args.only else cases:
        results['cases'].append(measure(case, settings, skipped if benchmark.growing else {}))
        (args.out / f'{command}.json').write_text(json.dumps(results, indent=1))
        print(case_table(results['cases'][-1]), end='\n\n', flush=True)
    benchmark.plot(results['cases'], args.out / f'{command}.png')
    print(f'{summary(results)}Written: {args.out / command}.json, .png\n', flush=True)


def keep_candidates(cases: list[Case], names: list[str]) -> list[Case]:
    """Leave all candidates but those of the given names out, and cases that have none of them."""
    known = dict.fromkeys(each.name for case in cases for each in case.candidates)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f'--only has to name some of {", ".join(known)}; got {", ".join(unknown)}')
    kept = [[each for each in case.candidates if each.name in names] for case in cases]
    return [
        dataclasses.replace(case, candidates=candidates)
        for case, candidates in zip(cases, kept, strict=True)
        if candidates
    ]


def summary(results: dict) -> str:
    """Table over all cases, for benchmarks that have one."""
    make_table = BENCHMARKS[results['command']].summary
    return f'{make_table(results["cases"])}\n\n' if make_table else ''


def report(results: dict) -> str:
    """Everything that a run printed."""
    tables = ''.join(f'{case_table(case)}\n\n' for case in results['cases'])
    return f'{machine_line(results["machine"])}\n\n{tables}{summary(results)}'.rstrip()


if __name__ == '__main__':
    main(sys.argv[1:])
