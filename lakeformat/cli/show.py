"""``lakeformat show``: commands that show operators how a table is stored."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakeformat.cli.arguments import AsJson, StorageOptionPairs, TablePath, open_table
from lakeformat.cli.output import show_json, show_rows
from lakeformat.errors import InstantNotAvailableError

__all__ = ["commit", "plan", "slices", "timeline"]

_COUNTS = ("num_writes", "num_inserts", "num_updates", "num_deletes", "size_bytes")
_InstantTime = Annotated[str, typer.Argument(help="Its instant time; history and show timeline list them.")]


def slices(
    path: TablePath,
    partition: Annotated[str | None, typer.Option(help="Only those of this partition path.")] = None,
    as_of: Annotated[str | None, typer.Option(help="As they were at an instant, or at a version number.")] = None,
    as_json: AsJson = False,
    storage_option: StorageOptionPairs = None,
) -> None:
    """List the file slices that make up the table.

    [bold]lakeformat show slices /data/flights --partition month=3[/bold]
    """
    import pyarrow.compute as pc

    files = open_table(path, None, storage_option).files(as_of=as_of)
    if partition is not None:
        files = files.filter(pc.equal(files["partition_path"], partition))
    if as_json:
        show_json(files.to_pylist())
        return
    names = ("partition_path", "file_id", "instant_time", "rows", "size_bytes")
    logs = [len(names_of or ()) or None for names_of in files["log_files"].to_pylist()]
    columns = [*(files[name].to_pylist() for name in names), logs]
    shown = ("partition", "file id", "instant", "rows", "bytes", "log files")
    filled = [number for number, column in enumerate(columns) if any(value not in (None, "") for value in column)]
    show_rows([shown[number] for number in filled], zip(*(columns[number] for number in filled), strict=True))


def timeline(path: TablePath, as_json: AsJson = False, storage_option: StorageOptionPairs = None) -> None:
    """List all instants of the active timeline, completed or not, the newest last.

    Commits that were rolled back on an object store stay on the timeline for an hour; their state is undone.

    [bold]lakeformat show timeline /data/flights[/bold]
    """
    store = open_table(path, None, storage_option).context.store
    loaded = store.load()
    instants = [
        (
            instant.time,
            instant.action.value,
            "undone" if instant in loaded.voids else instant.state.name.lower(),
            instant.completion_time,
        )
        for instant in sorted((*loaded.instants, *loaded.voids))
    ]
    names = ("instant", "action", "state", "completed")
    if as_json:
        show_json([dict(zip(names, cells, strict=True)) for cells in instants])
        return
    width = 4 if any(cells[3] for cells in instants) else 3
    show_rows(names[:width], [cells[:width] for cells in instants])


def commit(
    path: TablePath, instant_time: _InstantTime, as_json: AsJson = False, storage_option: StorageOptionPairs = None
) -> None:
    """Show one commit: the files it wrote, the groups it replaced, its extra metadata.

    [bold]lakeformat show commit /data/flights 20251120083000123[/bold]
    """
    store = open_table(path, None, storage_option).context.store
    matches = [instant for instant in store.load().commits if instant.time == instant_time]
    if not matches:
        raise _not_on_timeline("completed commit", instant_time)
    metadata = store.read_commit(matches[0])
    if as_json:
        show_json(metadata)
        return
    print(f"{metadata.operation.lower()} {instant_time} ({matches[0].action.value})")
    stats = [
        (
            s.partition_path,
            s.path.rpartition("/")[2],
            s.num_writes,
            s.num_inserts,
            s.num_updates,
            s.num_deletes,
            s.size_bytes,
        )
        for s in metadata.all_stats()
    ]
    show_rows(("partition", "file", "rows", "inserted", "updated", "deleted", "bytes"), stats)
    replaced = [(partition, id_) for partition, ids in metadata.replaced.items() for id_ in ids]
    if replaced:
        show_rows(("partition", "replaced file id"), replaced)
    extra = [(name, _short(text)) for name, text in metadata.extra.items()]
    if extra:
        show_rows(("extra metadata", ""), extra)


def plan(
    path: TablePath, instant_time: _InstantTime, as_json: AsJson = False, storage_option: StorageOptionPairs = None
) -> None:
    """Show what a clustering or compaction is going to rewrite.

    [bold]lakeformat show plan /data/flights 20251120083000123[/bold]
    """
    store = open_table(path, None, storage_option).context.store
    instant = next((pending for pending in store.load().instants if pending.time == instant_time), None)
    if instant is None:
        raise _not_on_timeline("instant", instant_time)
    contents: Any = store.read_requested_replace(instant) or store.read_compaction_plan(instant)
    if contents is None:
        raise InstantNotAvailableError(f"instant {instant_time} is a {instant.action.value} and has no plan to show")
    if as_json:
        show_json(contents)
        return
    from rich.pretty import pprint

    pprint(contents, expand_all=True)


def _not_on_timeline(what: str, instant_time: str) -> InstantNotAvailableError:
    return InstantNotAvailableError(
        f"there is no {what} {instant_time} on the active timeline; lakeformat show timeline lists its instants"
    )


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
