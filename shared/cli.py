"""The ``book`` command."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from shared import catalogue
from shared.errors import FailedRun, WrongRequest
from shared.figures import find

USAGE_ERROR = typer.BadParameter.__base__  # of every wrong option; typer has no name of its own for it
INTERRUPTED = 130  # what typer makes of Ctrl-C, and what a shell expects
PLAIN_WIDTH = 200  # of tables that go to a file or a pipe

app = typer.Typer(
    help="Run and read a book that reproduces what four studies say ReLU networks prefer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
err = Console(stderr=True, soft_wrap=True, highlight=False)

FIGURES = Annotated[
    list[str] | None, typer.Argument(metavar="[FIGURE]...", help="For example spectral/fig03.")
]


class _Assignments(TyperCommand):
    """Lets ``-p NAME VALUE``, as papermill spells it, mean ``-p NAME=VALUE``."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        joined: list[str] = []
        for argument in arguments:
            if len(joined) > 1 and joined[-2] in ("-p", "--parameter") and "=" not in joined[-1]:
                joined[-1] += f"={argument}"
            else:
                joined.append(argument)
        return super().parse_args(context, joined)


@app.command("list")
def list_figures() -> None:
    """Every figure with its verdicts, whether it is recorded, and its time at each scale."""
    _print_table(("figure", "shows", "claims", "recorded", "time"), catalogue.rows())


@app.command()
def show(figure: Annotated[str, typer.Argument(metavar="FIGURE")]) -> None:
    """The claims and the parameters of a figure: types, units, defaults, conditions, presets."""
    found = find(figure)
    out.print(f"[bold]{found.name}[/bold]  {found.title}\n")
    for line in catalogue.claim_lines(found):
        out.print(line, markup=False)
    out.print()
    for line in catalogue.parameter_lines(found):
        out.print(line, markup=False)


@app.command(cls=_Assignments)
def run(
    figures: FIGURES = None,
    all_: Annotated[bool, typer.Option("--all", help="Every figure.")] = False,
    preset: Annotated[str, typer.Option(help="record, smoke or paper.")] = "record",
    parameters: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="Override one parameter."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what the store holds.")] = False,
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="Worker processes.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write the executed notebook.")] = None,
) -> None:
    """Execute figures: from the record where there is one, computing what is missing."""
    from shared import running

    requests = running.plan(
        figures or [], everything=all_, preset=preset, assignments=parameters or [], fresh=fresh, jobs=jobs,
        output=output,
    )  # fmt: skip
    running.run(requests, out)


@app.command()
def build(
    strict: Annotated[
        bool, typer.Option("--strict/--lenient", help="Whether a warning fails the build.")
    ] = True,
) -> None:
    """Build the book from the executed figures and print the path of its first page."""
    from shared import pages

    index, current = pages.build(strict=strict)
    out.print(f"{'The book is up to date' if current else 'The book is built'}: {index}")


@app.command()
def verify(
    figures: FIGURES = None,
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="Worker processes.")] = None,
) -> None:
    """Measure again what the records of figures hold, compare, and stamp those that agree."""
    from shared import verification

    if not verification.run([find(name) for name in figures or []], jobs, out):
        raise FailedRun(
            "some records do not agree with what today's code measures; they are left as they are"
        )


@app.command()
def status() -> None:
    """The records of each figure: how many, how large, how they were made, and whether they are stale."""
    _print_table(catalogue.STATUS_HEADINGS, catalogue.status_rows())


@app.command()
def data(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
) -> None:
    """Fetch and check data sets; without names, say which are here."""
    from shared import data as datasets

    for name in names or []:
        images = datasets.load(name)
        shape = " x ".join(str(size) for size in images.x_train.shape[1:])
        out.print(f"{images.identity}: {len(images.x_train)} + {len(images.x_test)} images of {shape}")
    if not names:
        for name in datasets.REGISTRY:
            out.print(f"{name}: {'here' if datasets.is_here(name) else 'not here'}")


def _print_table(headings: Iterable[str], rows: Iterable[list[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def main() -> None:
    """Run the command; a person's mistake ends in one or two lines and status 2, a failed run in 1."""
    from shared.data import DataUnavailable

    try:
        status = app(standalone_mode=False)
    except USAGE_ERROR as error:
        _end(error.format_message(), 2)
    except WrongRequest as error:
        _end(str(error), 2)
    except (FailedRun, DataUnavailable) as error:
        _end(str(error), 1)
    if status == INTERRUPTED:
        _end("stopped; finished records are kept, and the same command continues from them", INTERRUPTED)
    sys.exit(status)


def _end(message: str, status: int) -> None:
    err.print(f"book: {message}", markup=False)
    sys.exit(status)


if __name__ == "__main__":
    main()
